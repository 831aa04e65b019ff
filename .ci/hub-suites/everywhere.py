"""A plugin of pytest: most of pymongo's tests of a live server are left out behind a load balancer, though they would run there."""


def pytest_configure(config):
    import test

    test.IntegrationTest.RUN_ON_LOAD_BALANCER = True
