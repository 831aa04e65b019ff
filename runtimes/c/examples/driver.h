/* What both drivers need: time, the pool's beginning and end, and commands in OP_MSG, by hand. */
#ifndef DRIVER_H
#define DRIVER_H

#include "cmap.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { HEADER = 16, ROOM = 4096 };

static struct cmap_pool *pool;

/* The pool's time. It needs no date, and never goes back. */
static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Anything but CMAP_OK is a mistake in the program here: no call of the pool fails for another reason. */
static void expect(int32_t result)
{
    if (result != CMAP_OK) {
        const char *text = "";
        size_t length = 0;
        cmap_pool_problem(pool, &text, &length);
        fprintf(stderr, "cmap: error %d: %.*s\n", result, (int)length, text);
        abort();
    }
}

/* Makes the pool, and finds the server. */
static struct addrinfo *begin(const char *host, const char *port)
{
    static const char options[] = "{\"maxPoolSize\": 3, \"waitQueueTimeoutMS\": 10000}";
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *address = NULL;
    char name[256], problem[256] = "the host is unknown";
    snprintf(name, sizeof name, "%s:%s", host, port);
    if (getaddrinfo(host, port, &hints, &address) != 0
        || cmap_pool_new(name, strlen(name), options, sizeof options - 1, now(), &pool, problem, sizeof problem)) {
        fprintf(stderr, "%s\n", problem);
        exit(2);
    }
    expect(cmap_pool_ready(pool, now()));
    return address;
}

/* Fails the check-outs whose time is up. Before a check-out: drain, and check out at the moment that this returns. Otherwise that call
 * may fail one of them and give its index to the new check-out, while its CMAP_FAIL is still among the outputs. */
static uint64_t handle_timeout(void)
{
    uint64_t moment = now();
    expect(cmap_pool_handle_timeout(pool, moment));
    return moment;
}

/* Says what the pool has done, and frees it. */
static void end(struct addrinfo *address)
{
    const char *json;
    size_t length;
    expect(cmap_pool_statistics(pool, now(), &json, &length));
    printf("%.*s\n", (int)length, json);
    cmap_pool_free(pool);
    freeaddrinfo(address);
}

/* The establishment of a connection has failed. */
static void fail_to_establish(const struct cmap_connection *connection, uint32_t phase)
{
    static const char text[] = "the server cannot be reached";
    expect(cmap_pool_establish_failed(
        pool, now(), connection, phase, CMAP_FAULT_NETWORK, 0, CMAP_REACTION_BY_RULES, text, sizeof text - 1));
}

/* The answer to CMAP_CHECK, without waiting: a peer that has hung up has left an end or an error behind. */
static int is_alive(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static void put(uint8_t *to, uint32_t number)
{
    for (int byte = 0; byte < 4; byte++)
        to[byte] = (uint8_t)(number >> 8 * byte);
}

/* The length of a message whose header is there. */
static uint32_t message_length(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* Writes the message { <name>: 1, $db: "admin" }, and returns its length. */
static size_t write_command(const char *name, uint8_t *message)
{
    static const uint8_t database[] = "\x02$db\0\x06\0\0\0admin\0";
    size_t name_length = strlen(name) + 1;
    uint8_t *document = message + 21, *at = document + 4;
    *at++ = 0x10; /* a 32-bit number */
    memcpy(at, name, name_length);
    put(at += name_length, 1);
    memcpy(at += 4, database, sizeof database); /* with the zero that ends the document */
    at += sizeof database;
    put(document, (uint32_t)(at - document));
    put(message, (uint32_t)(at - message));
    put(message + 4, 1);     /* requestID */
    put(message + 8, 0);     /* responseTo */
    put(message + 12, 2013); /* OP_MSG */
    put(message + 16, 0);    /* no flags */
    message[20] = 0;         /* one document */
    return (size_t)(at - message);
}

/* Whether a reply says { ok: 1.0 }. */
static int is_ok(const uint8_t *reply, size_t length)
{
    static const uint8_t ok[] = {1, 'o', 'k', 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f};
    for (size_t at = HEADER; at + sizeof ok <= length; at++)
        if (memcmp(reply + at, ok, sizeof ok) == 0)
            return 1;
    return 0;
}

#endif
