/*
 * A driver in one thread, with all sockets in one epoll: epoll HOST PORT CLIENTS PINGS
 *
 * Each call of the pool is followed by drain(), and the loop sleeps until a socket or the pool has something to do. What the pool keeps
 * as a connection's socket is a pointer here.
 */
#define _GNU_SOURCE
#include "driver.h"
#include <sys/epoll.h>
#include <unistd.h>

enum { MOST_CLIENTS = 1024 };

struct socket {
    int fd, client;
    enum { CONNECTING, GREETING, IDLE, PINGING } state;
    struct cmap_connection connection;
    struct cmap_check_out check_out; /* who uses it, while it is PINGING */
    size_t received;
    uint8_t reply[ROOM];
};

static int epoll, unfinished, failures, connecting;
static int pings_left[MOST_CLIENTS], waiting[MOST_CLIENTS]; /* by client; the client by cmap_check_out_index */
static int again[MOST_CLIENTS], again_count;                /* clients whose check-out has failed */
static struct addrinfo *address;

static void discard(struct socket *socket)
{
    close(socket->fd);
    free(socket);
}

static void send_command(struct socket *socket, const char *name)
{
    uint8_t message[ROOM];
    size_t length = write_command(name, message);
    socket->received = 0;
    (void)!send(socket->fd, message, length, MSG_NOSIGNAL); /* what is wrong is seen when it is read */
}

static void give_up(struct socket *socket, uint32_t phase)
{
    fail_to_establish(&socket->connection, phase);
    connecting--;
    discard(socket);
}

static void begin_to_connect(const struct cmap_connection *connection)
{
    struct socket *new = calloc(1, sizeof *new);
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = new};
    if (new == NULL)
        abort();
    new->connection = *connection;
    new->fd = socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK, 0);
    connecting++;
    if (new->fd < 0 || (connect(new->fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS)
        || epoll_ctl(epoll, EPOLL_CTL_ADD, new->fd, &event) < 0)
        give_up(new, CMAP_PHASE_CONNECT);
}

/* A client has its connection. */
static void use(const struct cmap_output *delivery)
{
    struct socket *socket = (struct socket *)(uintptr_t)delivery->socket;
    socket->client = waiting[cmap_check_out_index(&delivery->check_out)];
    socket->check_out = delivery->check_out;
    socket->state = PINGING;
    send_command(socket, "ping");
}

/* Does what the pool says. */
static void drain(void)
{
    struct cmap_output output = {.size = sizeof output};
    for (;;) {
        expect(cmap_pool_poll_output(pool, &output));
        struct socket *socket = (struct socket *)(uintptr_t)output.socket;
        switch (output.kind) {
        case CMAP_NOTHING:
            return;
        case CMAP_CONNECT:
            begin_to_connect(&output.connection);
            break;
        case CMAP_CHECK:
            expect(cmap_pool_checked(pool, now(), &output.connection, (uint32_t)is_alive(socket->fd)));
            break;
        case CMAP_DELIVER:
            use(&output);
            break;
        case CMAP_FAIL:
            fprintf(stderr, "%s\n", output.text);
            failures++;
            again[again_count++] = waiting[cmap_check_out_index(&output.check_out)]; /* not here: a check-out follows a drain */
            break;
        case CMAP_CLOSE:
            discard(socket);
            break;
        } /* Events are for logs; nothing else is asked for by what this program calls. */
    }
}

/* A client wants a connection for its next ping, if there is one. */
static void go_on(int client)
{
    struct cmap_output delivery = {.size = sizeof delivery};
    if (pings_left[client]-- == 0) {
        unfinished--;
        return;
    }
    uint64_t moment = handle_timeout();
    drain();
    expect(cmap_pool_check_out(pool, moment, CMAP_NEVER, NULL, &delivery.check_out, &delivery));
    waiting[cmap_check_out_index(&delivery.check_out)] = client;
    if (delivery.kind == CMAP_DELIVER)
        use(&delivery);
}

/* The socket is connected, or will never be: what is sent and read next shows it. */
static void greet(struct socket *socket)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = socket};
    epoll_ctl(epoll, EPOLL_CTL_MOD, socket->fd, &event);
    socket->state = GREETING;
    send_command(socket, "hello");
}

/* Something has come, or the peer has hung up. */
static void receive(struct socket *socket)
{
    struct cmap_output next = {.size = sizeof next};
    int client = socket->client;
    ssize_t count = recv(socket->fd, socket->reply + socket->received, ROOM - socket->received, 0);
    socket->received += count > 0 ? (size_t)count : 0;
    int is_whole = socket->received >= HEADER && message_length(socket->reply) <= socket->received;
    if (!is_whole && (count > 0 || (count < 0 && errno == EAGAIN)))
        return;
    int is_fine = is_whole && is_ok(socket->reply, socket->received);
    if (socket->state == PINGING) {
        socket->state = IDLE;
        failures += !is_fine;
        expect(cmap_pool_check_in(pool, now(), &socket->check_out, &socket->connection, (uint64_t)(uintptr_t)socket,
            is_fine ? CMAP_CONDITION_USABLE : CMAP_CONDITION_ERRORED, &next));
        if (next.kind == CMAP_DELIVER)
            use(&next);
        go_on(client);
    } else if (socket->state == IDLE) {
        expect(cmap_pool_peer_closed(pool, now(), &socket->connection));
    } else if (is_fine) {
        socket->state = IDLE;
        connecting--;
        expect(cmap_pool_established(pool, now(), &socket->connection, (uint64_t)(uintptr_t)socket));
    } else {
        give_up(socket, CMAP_PHASE_HELLO);
    }
}

/* Sleeps until a socket or the pool has something to do, and does it: one thing, since it may discard another socket. */
static void turn(void)
{
    struct epoll_event event;
    uint64_t at, moment = now();
    uint32_t reason;
    for (drain(); again_count > 0; drain())
        go_on(again[--again_count]);
    if (unfinished + connecting == 0)
        return;
    expect(cmap_pool_poll_timeout(pool, &at, &reason));
    int millis = at == CMAP_NEVER ? -1 : at <= moment ? 0 : (int)((at - moment) / 1000000 + 1);
    if (epoll_wait(epoll, &event, 1, millis) <= 0)
        handle_timeout();
    else if (((struct socket *)event.data.ptr)->state == CONNECTING)
        greet(event.data.ptr);
    else
        receive(event.data.ptr);
}

int main(int count, char **arguments)
{
    int clients = count == 5 ? atoi(arguments[3]) : 0;
    if (clients < 1 || clients > MOST_CLIENTS)
        return 2;
    address = begin(arguments[1], arguments[2]);
    epoll = epoll_create1(0);
    unfinished = clients;
    for (int client = 0; client < clients; client++) {
        pings_left[client] = atoi(arguments[4]);
        go_on(client);
    }
    while (unfinished > 0)
        turn();
    expect(cmap_pool_close(pool, now()));
    while (connecting > 0)
        turn();
    drain();
    end(address);
    return failures > 0;
}
