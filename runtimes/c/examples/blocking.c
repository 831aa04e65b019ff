/*
 * A blocking driver: threads share a pool behind one mutex, and who waits for a connection has a condition of its own.
 *
 *     blocking HOST PORT THREADS PINGS
 *
 * Each call of the pool is made under the mutex, and followed by drain(). Connections are established in threads of their own, at most
 * maxConnecting at a time: not in the thread that waits, which may get another connection sooner.
 */
#define _POSIX_C_SOURCE 200809L
#include "driver.h"

#include <pthread.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

struct waiter {
    pthread_cond_t answered;
    struct cmap_output answer; /* CMAP_NOTHING until it has come */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t no_connectors = PTHREAD_COND_INITIALIZER;
static pthread_condattr_t by_monotonic_clock;
static struct waiter *waiters[MOST_THREADS]; /* by cmap_check_out_index */
static struct addrinfo *address;
static int connectors, pings, failures;

static int read_all(int fd, uint8_t *to, size_t length)
{
    for (ssize_t count; length > 0; to += count, length -= (size_t)count)
        if ((count = recv(fd, to, length, 0)) <= 0)
            return 0;
    return 1;
}

/* Sends a command, and waits for its reply. */
static int run(int fd, const char *name)
{
    uint8_t message[ROOM];
    size_t length = write_command(name, message);
    if (send(fd, message, length, MSG_NOSIGNAL) != (ssize_t)length || !read_all(fd, message, HEADER))
        return 0;
    length = message_length(message);
    return length >= HEADER && length <= ROOM && read_all(fd, message + HEADER, length - HEADER) && is_ok(message, length);
}

static void drain(void);

/* A thread that establishes one connection. */
static void *establish(void *argument)
{
    struct cmap_connection connection = *(struct cmap_connection *)argument;
    int fd = socket(address->ai_family, address->ai_socktype, 0);
    int is_connected = fd >= 0 && connect(fd, address->ai_addr, address->ai_addrlen) == 0;
    int is_established = is_connected && run(fd, "hello");
    free(argument);
    pthread_mutex_lock(&mutex);
    if (is_established) {
        expect(cmap_pool_established(pool, now(), &connection, (uint64_t)fd));
    } else {
        if (fd >= 0)
            close(fd);
        fail_to_establish(&connection, is_connected ? CMAP_PHASE_HELLO : CMAP_PHASE_CONNECT);
    }
    drain();
    if (--connectors == 0)
        pthread_cond_signal(&no_connectors);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void begin_to_connect(const struct cmap_connection *connection)
{
    struct cmap_connection *argument = malloc(sizeof *argument);
    pthread_t thread;
    if (argument == NULL)
        abort();
    *argument = *connection;
    connectors++;
    if (pthread_create(&thread, NULL, establish, argument) != 0)
        abort();
    pthread_detach(thread);
}

static void answer(const struct cmap_output *output)
{
    struct waiter *waiter = waiters[cmap_check_out_index(&output->check_out)];
    waiter->answer = *output;
    pthread_cond_signal(&waiter->answered);
}

/* Does what the pool says. The caller has the mutex. */
static void drain(void)
{
    struct cmap_output output = {.size = sizeof output};
    for (;;) {
        expect(cmap_pool_poll_output(pool, &output));
        switch (output.kind) {
        case CMAP_NOTHING:
            return;
        case CMAP_CONNECT:
            begin_to_connect(&output.connection);
            break;
        case CMAP_CHECK:
            expect(cmap_pool_checked(pool, now(), &output.connection, (uint32_t)is_alive((int)output.socket)));
            break;
        case CMAP_FAIL:
            fprintf(stderr, "%s\n", output.text); /* lent until the next call only */
            answer(&output);
            break;
        case CMAP_DELIVER:
            answer(&output);
            break;
        case CMAP_CLOSE:
            close((int)output.socket);
            break;
        } /* Events are for logs; nothing else is asked for by what this program calls. */
    }
}

/* Waits for a connection. The caller has the mutex. */
static struct cmap_output check_out(void)
{
    struct waiter waiter = {.answer = {.size = sizeof waiter.answer}};
    struct cmap_check_out check_out;
    pthread_cond_init(&waiter.answered, &by_monotonic_clock);
    uint64_t moment = handle_timeout();
    drain();
    expect(cmap_pool_check_out(pool, moment, CMAP_NEVER, NULL, &check_out, &waiter.answer));
    waiters[cmap_check_out_index(&check_out)] = &waiter;
    drain();
    while (waiter.answer.kind == CMAP_NOTHING) {
        uint64_t at;
        expect(cmap_pool_next_check_out_timeout(pool, &at));
        struct timespec until = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
        if (at == CMAP_NEVER)
            pthread_cond_wait(&waiter.answered, &mutex);
        else
            pthread_cond_timedwait(&waiter.answered, &mutex, &until);
        handle_timeout();
        drain();
    }
    pthread_cond_destroy(&waiter.answered);
    return waiter.answer;
}

/* A thread of the application. */
static void *work(void *unused)
{
    pthread_mutex_lock(&mutex);
    for (int number = 0; number < pings; number++) {
        struct cmap_output used = check_out(), next = {.size = sizeof next};
        if (used.kind == CMAP_FAIL) {
            failures++;
            continue;
        }
        pthread_mutex_unlock(&mutex);
        int is_fine = run((int)used.socket, "ping");
        pthread_mutex_lock(&mutex);
        failures += !is_fine;
        expect(cmap_pool_check_in(pool, now(), &used.check_out, &used.connection, used.socket,
            is_fine ? CMAP_CONDITION_USABLE : CMAP_CONDITION_ERRORED, &next));
        if (next.kind == CMAP_DELIVER)
            answer(&next);
        drain();
    }
    pthread_mutex_unlock(&mutex);
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[MOST_THREADS];
    int number = count == 5 ? atoi(arguments[3]) : 0;
    if (number < 1 || number > MOST_THREADS)
        return 2;
    pings = atoi(arguments[4]);
    pthread_condattr_init(&by_monotonic_clock);
    pthread_condattr_setclock(&by_monotonic_clock, CLOCK_MONOTONIC);
    address = begin(arguments[1], arguments[2]);
    for (int thread = 0; thread < number; thread++)
        if (pthread_create(&threads[thread], NULL, work, NULL) != 0)
            abort();
    for (int thread = 0; thread < number; thread++)
        pthread_join(threads[thread], NULL);
    pthread_mutex_lock(&mutex);
    expect(cmap_pool_close(pool, now()));
    drain();
    while (connectors > 0)
        pthread_cond_wait(&no_connectors, &mutex);
    end(address);
    pthread_mutex_unlock(&mutex);
    pthread_condattr_destroy(&by_monotonic_clock);
    return failures > 0;
}
