/* What a check-out and a check-in cost in C: the calls of `machine_pair` in measure.py, their drains and two looks at the clock.
 *
 * pair PAIRS: the time of each, in microseconds. */
#include <cmap.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void expect(int32_t code)
{
    if (code != CMAP_OK) {
        fprintf(stderr, "a call was refused: %d\n", (int)code);
        exit(1);
    }
}

int main(int count, char **arguments)
{
    const char address[] = "db.example:27017", options[] = "{\"checkAfterIdleMS\": -1}";
    long pairs = count > 1 ? atol(arguments[1]) : 1000000;
    struct cmap_pool *pool;
    struct cmap_check_out check_out;
    struct cmap_output output = {.size = sizeof output}, delivery = output, drained = output;

    expect(cmap_pool_new(address, sizeof address - 1, options, sizeof options - 1, 0, &pool, NULL, 0));
    expect(cmap_pool_observe(pool, 0));
    expect(cmap_pool_ready(pool, now()));
    expect(cmap_pool_check_out(pool, now(), CMAP_NEVER, NULL, &check_out, &delivery));
    do {
        expect(cmap_pool_poll_output(pool, &output));
        if (output.kind == CMAP_CONNECT)
            expect(cmap_pool_established(pool, now(), &output.connection, 1));
        if (output.kind == CMAP_DELIVER)
            delivery = output;
    } while (output.kind != CMAP_NOTHING);
    expect(cmap_pool_check_in(pool, now(), &delivery.check_out, &delivery.connection, delivery.socket, CMAP_CONDITION_USABLE, &drained));

    uint64_t began = now();
    for (long pair = 0; pair < pairs; pair++) {
        expect(cmap_pool_check_out(pool, now(), CMAP_NEVER, NULL, &check_out, &delivery));
        expect(cmap_pool_poll_output(pool, &drained));
        expect(cmap_pool_check_in(pool, now(), &check_out, &delivery.connection, delivery.socket, CMAP_CONDITION_USABLE, &output));
        expect(cmap_pool_poll_output(pool, &drained));
    }
    printf("%f\n", (double)(now() - began) / 1000 / (double)pairs);
    cmap_pool_free(pool);
    return 0;
}
