/*
 * cmap: MongoDB's connection pool as a state machine without I/O, by the specification Connection Monitoring and Pooling (CMAP).
 *
 * The pool decides; the driver connects, reads, writes, waits and closes. One struct cmap_pool is the pool of one server.
 *
 * THE DRIVING RULE. Make a call. Then take the outputs by cmap_pool_poll_output until it says CMAP_NOTHING, and do what they say.
 * Then ask cmap_pool_poll_timeout when to call cmap_pool_handle_timeout. Every call may be made at any time, also while outputs are
 * left; one that makes no sense is refused, and has changed nothing. An action (CMAP_CONNECT .. CMAP_WARMED_UP) that is not carried out
 * is lost; an event (CMAP_EVENT_..) may be ignored. A later library may have further events; it has further actions only where a new
 * option or a new function asks for them.
 *
 * TIME is in nanoseconds from a moment that the driver chooses. A `now` before the latest one that the pool has seen counts as that.
 *
 * SOCKETS are numbers of the driver's: a descriptor, an index, a pointer. The pool keeps the one of a connection while nobody uses it,
 * gives it back by CMAP_DELIVER, CMAP_REFRESH or CMAP_CLOSE, and never looks at it.
 *
 * RESULTS. A function returns CMAP_OK, or a number CMAP_ERROR_.. that says what is wrong with the call; cmap_pool_problem says it in
 * words. What it writes to (a pointer that is not const) is written only with CMAP_OK. A number is never used for something else.
 *
 *     a pointer that must not be NULL             CMAP_ERROR_NULL
 *     a struct whose size is too small            CMAP_ERROR_SIZE
 *     a text that is not UTF-8                    CMAP_ERROR_TEXT
 *     a number that an argument cannot have       CMAP_ERROR_RANGE
 *     bytes that are no connection or check-out   CMAP_ERROR_HANDLE
 *     a connection of another pool                CMAP_ERROR_FOREIGN_CONNECTION
 *     a connection that is checked in twice       CMAP_ERROR_NOT_IN_USE, or CMAP_ERROR_OTHER_USE if another check-out has it
 *     options that are unknown or contradict      CMAP_ERROR_OPTIONS
 *     a second call while one is inside           CMAP_ERROR_BUSY
 *     a call after a bug of the library           CMAP_ERROR_PANIC, from then on; free the pool
 *
 * MEMORY. The pool is made by cmap_pool_new and freed once by cmap_pool_free; everything else is the caller's. Pointers have to be NULL
 * or valid for the call. Structs may be read from and written to in one call. A text goes in as a pointer and a number of bytes, in
 * UTF-8, and is not kept; it may be NULL if the number is 0. A text that comes out is lent until the next call of the same pool, and a
 * zero follows it.
 *
 * THREADS. A pool serves one caller at a time, on any thread: the lock is the driver's. There is none inside, no callback, no thread, no
 * clock and no source of chance, but for the option `seed`. Pools are independent of each other.
 *
 * FORKS. A child must not use a pool in which a thread of its parent may have been: see cmap_pool_reset_after_fork.
 */

#ifndef CMAP_H
#define CMAP_H

#include <stddef.h>
#include <stdint.h>

// The version of this header.
#define CMAP_VERSION_MAJOR 0
#define CMAP_VERSION_MINOR 1
#define CMAP_VERSION_PATCH 0
#define CMAP_VERSION_NUMBER 1000

// The version of the ABI: a program needs the library of the same one.
#define CMAP_ABI 0

// No time: of a deadline, and of what time does not bring about.
#define CMAP_NEVER UINT64_MAX

// The call was made.
#define CMAP_OK 0

// A pointer is NULL that must not be.
#define CMAP_ERROR_NULL 1

// The `size` of a struct is smaller than the first version of that struct.
#define CMAP_ERROR_SIZE 2

// A text is not UTF-8.
#define CMAP_ERROR_TEXT 3

// A number is none of those that the argument can have.
#define CMAP_ERROR_RANGE 4

// A handle is none: its bytes were not made by this library.
#define CMAP_ERROR_HANDLE 5

// A text is not the address of a server.
#define CMAP_ERROR_ADDRESS 6

// The options are not JSON, an option is unknown, or has a value that it cannot have.
#define CMAP_ERROR_OPTIONS 7

// Nothing is recorded.
#define CMAP_ERROR_NOT_RECORDING 8

// Another call is inside the pool: of another thread, or of one that was inside when the process was forked.
#define CMAP_ERROR_BUSY 9

// A call has found a bug of this library. The pool answers so from now on; free it.
#define CMAP_ERROR_PANIC 10

// The connection belongs to another pool.
#define CMAP_ERROR_FOREIGN_CONNECTION 101

// The connection is not in use: it was checked in before, or never delivered.
#define CMAP_ERROR_NOT_IN_USE 102

// The connection is not being established: it is established, or was never to be.
#define CMAP_ERROR_NOT_PENDING 103

// The pool did not ask whether the connection is alive.
#define CMAP_ERROR_NOT_CHECKING 104

// The connection is not being refreshed.
#define CMAP_ERROR_NOT_REFRESHING 105

// The whole of a load-balanced pool was to be cleared: name the service.
#define CMAP_ERROR_CLEAR_WITHOUT_SERVICE 106

// A service was named to a pool that is not load-balanced.
#define CMAP_ERROR_CLEAR_WITH_SERVICE 107

// A service was reported outside load-balanced mode, or twice for one connection.
#define CMAP_ERROR_UNEXPECTED_SERVICE 108

// A load-balanced connection was established before its service was reported.
#define CMAP_ERROR_SERVICE_UNKNOWN 109

// Another check-out uses the connection: this one has given it back already, or never had it.
#define CMAP_ERROR_OTHER_USE 110

// The call makes no sense for another reason, which its text says.
#define CMAP_ERROR_MISUSE 199

// A connection that comes back can be used again: its last reply has been read to the end.
#define CMAP_CONDITION_USABLE 1

// A connection that comes back must not be used again: a network error, a timeout, a broken reply, or an operation that was cut
// off half-way.
#define CMAP_CONDITION_ERRORED 2

// A connection in use is for one operation, as it is at its delivery.
#define CMAP_PURPOSE_OTHER 1

// A connection in use is kept by a cursor.
#define CMAP_PURPOSE_CURSOR 2

// A connection in use is kept by a transaction.
#define CMAP_PURPOSE_TRANSACTION 3

// Establishing failed when the host's name was turned into addresses.
#define CMAP_PHASE_RESOLVE 1

// Establishing failed at a proxy.
#define CMAP_PHASE_PROXY 2

// Establishing failed when the socket connected.
#define CMAP_PHASE_CONNECT 3

// Establishing failed in the TLS handshake.
#define CMAP_PHASE_TLS 4

// Establishing failed at the first hello.
#define CMAP_PHASE_HELLO 5

// Establishing failed at authentication.
#define CMAP_PHASE_AUTHENTICATE 6

// Connecting, reading or writing failed, or the peer hung up.
#define CMAP_FAULT_NETWORK 1

// The peer did not answer in time.
#define CMAP_FAULT_TIMEOUT 2

// The server answered with an error.
#define CMAP_FAULT_SERVER 3

// Anything else: a certificate, a reply that breaks the protocol.
#define CMAP_FAULT_OTHER 4

// A failure clears the pool where the rules of Server Discovery and Monitoring say so: a driver without rules of its own.
#define CMAP_REACTION_BY_RULES 1

// A failure clears nothing, as one that the server labelled SystemOverloadedError: that error, or a driver that decides by itself
// and calls cmap_pool_clear. With the option backoff, further connections come after pauses.
#define CMAP_REACTION_KEEP_POOL 2

// A check-out that was given up waited, and is over.
#define CMAP_CANCELLED 1

// A check-out that was given up has its connection: it was returned, or is among the outputs; check it in.
#define CMAP_DELIVERED 2

// What was given up had ended before.
#define CMAP_FINISHED 3

// There are no more outputs; or a call has delivered nothing at once.
#define CMAP_NOTHING 0

// Do: establish the connection (connect, TLS, hello, authenticate), within connectTimeoutMS. Then call cmap_pool_established or
// cmap_pool_establish_failed; in load-balanced mode cmap_pool_hello before. Fields: connection, number; check_out: the one that
// caused it and waits, if there is one.
#define CMAP_CONNECT 1

// Do: see, without waiting, whether the peer has hung up, and call cmap_pool_checked. Fields: connection, number, socket.
#define CMAP_CHECK 2

// Do: run a ping within `nanos`, and call cmap_pool_refreshed, or close the socket and call cmap_pool_refresh_failed. Fields:
// connection, number, socket, nanos.
#define CMAP_REFRESH 3

// Do: hand the connection to the caller of the check-out. It comes back by cmap_pool_check_in. Fields: check_out, connection,
// number, socket.
#define CMAP_DELIVER 4

// Do: tell the caller of the check-out that it gets no connection. Fields: check_out; reason: CMAP_FAILED_..; nanos: how long it
// has waited; text; number: the connection that could not be established, if that is why; CMAP_FLAG_RETRYABLE.
#define CMAP_FAIL 5

// Do: close the socket, without waiting. Nothing has to be reported. Fields: connection, number, socket; reason: CMAP_CLOSED_...
#define CMAP_CLOSE 6

// Do: interrupt what goes on at the connection. An operation fails with a retryable error, and its connection is checked in; an
// establishment or a refresh is given up, and its socket closed: later reports about it are ignored. Fields: connection, number.
#define CMAP_INTERRUPT 7

// Do: tell the caller of a warm-up that it has ended. Fields: number: that of the warm-up; reason: CMAP_WARM or CMAP_COLD_..;
// text.
#define CMAP_WARMED_UP 8

// ConnectionPoolCreated. Field: text: the options that were set, as JSON.
#define CMAP_EVENT_POOL_CREATED 101

// ConnectionPoolReady.
#define CMAP_EVENT_POOL_READY 102

// ConnectionPoolCleared. Fields: service with CMAP_FLAG_SERVICE; CMAP_FLAG_INTERRUPT.
#define CMAP_EVENT_POOL_CLEARED 103

// ConnectionPoolClosed.
#define CMAP_EVENT_POOL_CLOSED 104

// ConnectionCreated. Field: number.
#define CMAP_EVENT_CONNECTION_CREATED 105

// ConnectionReady. Fields: number; nanos: since its creation.
#define CMAP_EVENT_CONNECTION_READY 106

// ConnectionClosed. Fields: number; reason: CMAP_CLOSED_..; text: what failed, if establishing it did.
#define CMAP_EVENT_CONNECTION_CLOSED 107

// ConnectionCheckOutStarted. Field: check_out.
#define CMAP_EVENT_CHECK_OUT_STARTED 108

// ConnectionCheckOutFailed. Fields: check_out; reason: CMAP_FAILED_..; nanos: since its start; text.
#define CMAP_EVENT_CHECK_OUT_FAILED 109

// ConnectionCheckedOut. Fields: check_out; number; nanos: since the check-out's start.
#define CMAP_EVENT_CHECKED_OUT 110

// ConnectionCheckedIn. Field: number.
#define CMAP_EVENT_CHECKED_IN 111

// A connection was closed because the pool was cleared after its creation: "stale".
#define CMAP_CLOSED_STALE 1

// A connection was closed because it was available for longer than maxIdleTimeMS, or its life was over: "idle".
#define CMAP_CLOSED_IDLE 2

// A connection was closed because establishing or using it failed: "error".
#define CMAP_CLOSED_ERROR 3

// A connection was closed because the pool was: "poolClosed".
#define CMAP_CLOSED_POOL_CLOSED 4

// A connection was closed because there are more than the limits allow since they became smaller.
#define CMAP_CLOSED_SURPLUS 5

// A check-out failed because the pool is closed; in events "poolClosed".
#define CMAP_FAILED_POOL_CLOSED 1

// A check-out failed because the pool is paused, or was cleared while it waited; in events "connectionError".
#define CMAP_FAILED_POOL_CLEARED 2

// A check-out failed after waitQueueTimeoutMS; in events "timeout".
#define CMAP_FAILED_WAIT_QUEUE_TIMEOUT 3

// A check-out failed at its own deadline; in events "timeout".
#define CMAP_FAILED_DEADLINE 4

// A check-out failed because the connection for it could not be established; in events "connectionError".
#define CMAP_FAILED_ESTABLISH 5

// A check-out was given up; in events "connectionError".
#define CMAP_FAILED_CANCELLED 6

// A check-out failed because as many waited as maxWaitQueueDepth allows; in events "connectionError".
#define CMAP_FAILED_WAIT_QUEUE_FULL 7

// A warm-up has as many connections as it asked for.
#define CMAP_WARM 0

// A warm-up ended because the pool is closed.
#define CMAP_COLD_POOL_CLOSED 1

// A warm-up ended because the pool is paused, or was cleared.
#define CMAP_COLD_POOL_CLEARED 2

// A warm-up ended because a connection could not be established.
#define CMAP_COLD_ESTABLISH 3

// A warm-up asks for more connections than maxPoolSize allows.
#define CMAP_COLD_MAX_POOL_SIZE 4

// The field `service` is set.
#define CMAP_FLAG_SERVICE 1

// Connections in use are interrupted.
#define CMAP_FLAG_INTERRUPT 2

// The operation may be tried again.
#define CMAP_FLAG_RETRYABLE 4

// Nothing depends on time.
#define CMAP_TIMEOUT_NONE 0

// Outputs are left to poll: at once.
#define CMAP_TIMEOUT_OUTPUTS 1

// The time of a check-out that waits is up.
#define CMAP_TIMEOUT_CHECK_OUT 2

// Stale connections are available after a clear: at once.
#define CMAP_TIMEOUT_PRUNE_STALE 3

// A connection reaches maxIdleTimeMS.
#define CMAP_TIMEOUT_PRUNE_IDLE 4

// It is time to see whether the host was used.
#define CMAP_TIMEOUT_HOST 5

// Connections are missing to minPoolSize.
#define CMAP_TIMEOUT_POPULATE 6

// A pause after the refusal of an overloaded server ends.
#define CMAP_TIMEOUT_BACKOFF 7

// maxNewConnectionsPerSecond allows another connection.
#define CMAP_TIMEOUT_CREATION_RATE 8

// The life of a connection ends.
#define CMAP_TIMEOUT_RETIRE 9

// A connection is held no more for its keys.
#define CMAP_TIMEOUT_HOLD 10

// It is time to see whether a connection has to be refreshed.
#define CMAP_TIMEOUT_REFRESH 11

// A warm-up may go on.
#define CMAP_TIMEOUT_WARM_UP 12

// Another reason.
#define CMAP_TIMEOUT_OTHER 99

// A pool. It serves one caller at a time, on any thread.
struct cmap_pool;

// A check-out, as its pool knows it: copy it, compare it, and hand it back. All zeros are no check-out.
struct cmap_check_out {
    // Numbers without a meaning outside of the pool.
    uint64_t opaque[3];
};

// A connection, as its pool knows it: copy it, compare it, and hand it back. All zeros are no connection.
struct cmap_connection {
    // Numbers without a meaning outside of the pool.
    uint64_t opaque[3];
};

// Something to do, or something that happened. What a kind does not mention is 0.
//
// `size` is set by the caller, to sizeof(struct cmap_output), before each call. A later version of the struct may have more fields
// at its end; a library fills those that are within the size.
struct cmap_output {
    // The size of the struct, set by the caller.
    uint32_t size;
    // One of the numbers CMAP_NOTHING, CMAP_CONNECT and so on.
    uint32_t kind;
    // Why: one of the numbers CMAP_CLOSED_.., CMAP_FAILED_.. or CMAP_COLD_.., as the kind says.
    uint32_t reason;
    // The server. 0 for a pool by itself.
    uint32_t server;
    // The numbers CMAP_FLAG_.. that hold, added.
    uint32_t flags;
    // The service behind a load balancer, where CMAP_FLAG_SERVICE says so.
    uint8_t service[12];
    // The connection.
    struct cmap_connection connection;
    // The check-out.
    struct cmap_check_out check_out;
    // The connection's number: from 1, in the order of creation, never reused. Of CMAP_WARMED_UP the number of the warm-up.
    uint64_t number;
    // The connection's socket, as the driver gave it.
    uint64_t socket;
    // A duration, in nanoseconds.
    uint64_t nanos;
    // A text in UTF-8, never NULL; a zero follows it. It is lent until the next call of the pool.
    const char *text;
    // The bytes of the text, without the zero.
    size_t text_length;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Asks for a connection. `*check_out` is the check-out; `*delivery` is CMAP_DELIVER if it was served at once, otherwise CMAP_NOTHING:
// then CMAP_DELIVER or CMAP_FAIL comes among the outputs, exactly one of them, unless the check-out is given up. The delivery
// comes there, too, if outputs were left when this was called. `check_out` may be that of `delivery`.
//
// `deadline` is the caller's own limit, whatever waitQueueTimeoutMS says, or CMAP_NEVER. `affinity` is the key whose connection
// is wanted (option affinity), or NULL.
int32_t cmap_pool_check_out(struct cmap_pool *pool,
                            uint64_t now,
                            uint64_t deadline,
                            const uint64_t *affinity,
                            struct cmap_check_out *check_out,
                            struct cmap_output *delivery);

// Gives up a check-out, in any state. `*found` is CMAP_CANCELLED: it waited, and is over, without a CMAP_FAIL; CMAP_DELIVERED: it
// has its connection, which was returned or is among the outputs, and has to be checked in; CMAP_FINISHED: it had ended.
int32_t cmap_pool_cancel_check_out(struct cmap_pool *pool,
                                   uint64_t now,
                                   const struct cmap_check_out *check_out,
                                   uint32_t *found);

// Ends a use of a connection: that of the check-out to which it was delivered. `condition` is CMAP_CONDITION_USABLE or
// CMAP_CONDITION_ERRORED. `*delivery` is CMAP_DELIVER if the connection serves the next waiter at once, otherwise CMAP_NOTHING.
//
// The socket is the pool's from now on; if the call fails it stays the caller's.
int32_t cmap_pool_check_in(struct cmap_pool *pool,
                           uint64_t now,
                           const struct cmap_check_out *check_out,
                           const struct cmap_connection *connection,
                           uint64_t socket,
                           uint32_t condition,
                           struct cmap_output *delivery);

// Says what a connection in use is for, which the text of a check-out that times out tells in load-balanced mode: CMAP_PURPOSE_...
int32_t cmap_pool_set_purpose(struct cmap_pool *pool,
                              const struct cmap_check_out *check_out,
                              const struct cmap_connection *connection,
                              uint32_t purpose);

// Makes all connections stale, pauses the pool, and fails every waiter. In load-balanced mode `service_id` is the id of the service
// whose connections are meant, 12 bytes, and nothing is paused; elsewhere it is NULL. If `interrupts` is not 0, connections in use
// and those that are being established are interrupted. `cause` is the error that led to it, for the errors of those who waited.
int32_t cmap_pool_clear(struct cmap_pool *pool,
                        uint64_t now,
                        const uint8_t *service_id,
                        uint32_t interrupts,
                        const char *cause,
                        size_t cause_length);

// Forgets the connection of a key (option affinity).
int32_t cmap_pool_end_affinity(struct cmap_pool *pool, uint64_t now, uint64_t key);

// The hello of a connection of a load-balanced pool named its service: 12 bytes. Report it before cmap_pool_established.
int32_t cmap_pool_hello(struct cmap_pool *pool,
                        uint64_t now,
                        const struct cmap_connection *connection,
                        const uint8_t *service_id);

// A connection was established. It serves a waiter or becomes available, or is closed (CMAP_CLOSE), if the pool was cleared or closed
// meanwhile.
//
// The socket is the pool's from now on; if the call fails it stays the caller's.
int32_t cmap_pool_established(struct cmap_pool *pool,
                              uint64_t now,
                              const struct cmap_connection *connection,
                              uint64_t socket);

// Establishing a connection failed. The check-out that caused it fails, too, if it still waits.
//
// `phase` is one of CMAP_PHASE_.., `fault` one of CMAP_FAULT_.., `server_code` the server's error code with CMAP_FAULT_SERVER, or 0.
// `reaction` is CMAP_REACTION_BY_RULES or CMAP_REACTION_KEEP_POOL. The text is for people: it is escaped and cut, and must not have
// a password in it.
int32_t cmap_pool_establish_failed(struct cmap_pool *pool,
                                   uint64_t now,
                                   const struct cmap_connection *connection,
                                   uint32_t phase,
                                   uint32_t fault,
                                   int32_t server_code,
                                   uint32_t reaction,
                                   const char *message,
                                   size_t message_length);

// The answer to CMAP_CHECK: a connection that is alive (not 0) is delivered; a dead one is closed (CMAP_CLOSE), and its waiter stays
// at the head of the queue.
int32_t cmap_pool_checked(struct cmap_pool *pool,
                          uint64_t now,
                          const struct cmap_connection *connection,
                          uint32_t is_alive);

// The answer to CMAP_REFRESH: the ping was answered in time.
//
// The socket is the pool's from now on; if the call fails it stays the caller's.
int32_t cmap_pool_refreshed(struct cmap_pool *pool,
                            uint64_t now,
                            const struct cmap_connection *connection,
                            uint64_t socket);

// The answer to CMAP_REFRESH: the ping failed, or was not answered in time. The driver has closed the socket. The arguments are those
// of cmap_pool_establish_failed; by the rules, only a network error clears the pool.
int32_t cmap_pool_refresh_failed(struct cmap_pool *pool,
                                 uint64_t now,
                                 const struct cmap_connection *connection,
                                 uint32_t fault,
                                 int32_t server_code,
                                 uint32_t reaction,
                                 const char *message,
                                 size_t message_length);

// The peer of a connection hung up. An available connection is closed at once, one in use at its check-in.
int32_t cmap_pool_peer_closed(struct cmap_pool *pool, uint64_t now, const struct cmap_connection *connection);

// The version of the library: its CMAP_VERSION_NUMBER.
uint32_t cmap_version_number(void);

// Makes a pool for one server. It is paused, until cmap_pool_ready, and has an output: CMAP_EVENT_POOL_CREATED.
//
// `address` is `host:port`, `[ipv6]:port` or the path of a Unix socket that ends in `.sock`. `options` are a JSON object, or
// nothing: the connection string's names maxPoolSize, minPoolSize, maxIdleTimeMS, maxConnecting, waitQueueTimeoutMS and
// loadBalanced, and this library's own, which the README lists. A name that is unknown is an error. Two pools of one address with the
// same `now` need different options poolNumber: otherwise neither notices connections of the other, and CMAP_ERROR_FOREIGN_CONNECTION
// does not come.
//
// `*pool` is for cmap_pool_free. It is written only if the result is CMAP_OK. Otherwise `problem`, if it is not NULL, is filled with
// the text that says why, cut to `problem_size` bytes, of which the last is a zero.
int32_t cmap_pool_new(const char *address,
                      size_t address_length,
                      const char *options,
                      size_t options_length,
                      uint64_t now,
                      struct cmap_pool **pool,
                      char *problem,
                      size_t problem_size);

// Frees a pool, with all that it has lent; NULL is ignored. Sockets that it holds are forgotten: close the pool before, and drain it.
// A pool with a call inside, as in a process that was forked meanwhile, is left as it is.
void cmap_pool_free(struct cmap_pool *pool);

// The server answers: check-outs are served from now on. Does nothing unless the pool is paused.
int32_t cmap_pool_ready(struct cmap_pool *pool, uint64_t now);

// Closes the pool: available connections are closed, and every waiter fails. Connections in use, and those that are being
// established, are closed when they come back.
int32_t cmap_pool_close(struct cmap_pool *pool,
                        uint64_t now);

// The process is a child that was forked, and this pool was its parent's: all connections are forgotten (their CMAP_CLOSE says
// which sockets to close here), every waiter fails, and the pool is paused unless it is behind a load balancer. Call it only if no thread
// was inside the pool when the process was forked; otherwise make another pool, and leave this one.
int32_t cmap_pool_reset_after_fork(struct cmap_pool *pool,
                                   uint64_t now);

// Takes the next output: call it after each call, until `output->kind` is CMAP_NOTHING. `output->size` has to be set.
int32_t cmap_pool_poll_output(struct cmap_pool *pool, struct cmap_output *output);

// When to call cmap_pool_handle_timeout: `*at`, or CMAP_NEVER; and why: `*reason`, one of CMAP_TIMEOUT_... Any call may change it. After
// cmap_pool_handle_timeout and a drain it is later than that call's `now`.
int32_t cmap_pool_poll_timeout(const struct cmap_pool *pool,
                               uint64_t *at,
                               uint32_t *reason);

// When time alone changes something for check-outs that wait: `*at`, or CMAP_NEVER. For drivers in which those who wait call
// cmap_pool_handle_timeout, and somebody else does so for the rest.
int32_t cmap_pool_next_check_out_timeout(const struct cmap_pool *pool,
                                         uint64_t *at);

// Whether there are events (not 0) or only actions (0). There are at first.
int32_t cmap_pool_observe(struct cmap_pool *pool, uint32_t on);

// The text of the pool's last failure. It is lent until the next call of the pool.
int32_t cmap_pool_problem(struct cmap_pool *pool, const char **problem, size_t *length);

// A small number of a check-out, by which a driver can keep its waiters in a table. No other check-out has it before this one ends: by
// its failure, by its cancellation, or by the check-in of its connection. The result for NULL, and for what is no check-out, is
// UINT32_MAX.
//
// It is free again as soon as the call that fails the check-out was made: its CMAP_FAIL may still be among the outputs. Call
// cmap_pool_handle_timeout and drain at the same `now` before cmap_pool_check_out, or use the bytes of the check-out.
uint32_t cmap_check_out_index(const struct cmap_check_out *check_out);

// Whether the pool was cleared since the connection was created: `*is_stale` is 1 or 0. An error of a stale connection says nothing of
// the server. A closed connection counts as stale, and so does one of another pool.
int32_t cmap_pool_is_stale(const struct cmap_pool *pool,
                           const struct cmap_connection *connection,
                           uint32_t *is_stale);

// What the pool has done until `now`, as a JSON object: its state and generation, the connections by their states, marks and totals,
// and, after cmap_pool_record_durations, how long everything took. It is lent until the next call of the pool.
int32_t cmap_pool_statistics(struct cmap_pool *pool,
                             uint64_t now,
                             const char **json,
                             size_t *length);

// Who holds connections, who waits, and what is being established, as a JSON object. Check-outs are named by their
// cmap_check_out_index. It is lent until the next call of the pool.
int32_t cmap_pool_holders(struct cmap_pool *pool, const char **json, size_t *length);

// The state of the machine, for a report of a bug, as a JSON object whose form may change with each version. It is lent until the next
// call of the pool.
int32_t cmap_pool_snapshot(struct cmap_pool *pool,
                           const char **json,
                           size_t *length);

// Records from now on how long everything takes (not 0), or forgets what was recorded (0). Off at first.
int32_t cmap_pool_record_durations(struct cmap_pool *pool, uint32_t on);

// Records the calls of the pool from now on, the latest in as many bytes, or in a mebibyte with 0; forgets what was recorded before.
// More than a gibibyte is refused: CMAP_ERROR_RANGE.
int32_t cmap_pool_start_recording(struct cmap_pool *pool,
                                  uint64_t bytes);

// Records no more, and forgets what was recorded.
int32_t cmap_pool_stop_recording(struct cmap_pool *pool);

// Records who has made a check-out, for the explanation of waits: a function, a place in the source, an endpoint. Call it right after
// cmap_pool_check_out. Does nothing if nothing is recorded. At most 4,096 different texts are kept; further ones are not noted: take
// few.
int32_t cmap_pool_note_holder(struct cmap_pool *pool,
                              const struct cmap_check_out *check_out,
                              const char *holder,
                              size_t holder_length);

// What is recorded, as a file. `unix_millis` is the time of day now, in milliseconds since 1970, or 0 if it is not known; `trigger` says
// why the file is written. The bytes are lent until the next call of the pool. The file has the address of the server and the texts of
// errors and holders in it, and nothing of what goes over the connections.
int32_t cmap_pool_recording(struct cmap_pool *pool,
                            uint64_t unix_millis,
                            const char *trigger,
                            size_t trigger_length,
                            const uint8_t **bytes,
                            size_t *length);

// Time has passed: does what is due. Early calls are harmless.
int32_t cmap_pool_handle_timeout(struct cmap_pool *pool, uint64_t now);

// Gives the pool new limits: a JSON object with any of maxPoolSize, minPoolSize, maxConnecting, maxWaitQueueDepth,
// maxNewConnectionsPerSecond and checkAfterIdleMS. The others stay as they are.
int32_t cmap_pool_resize(struct cmap_pool *pool, uint64_t now, const char *limits, size_t limits_length);

// Ends the lives of all connections that there are, evenly over `over_nanos`. Those in use are closed when they come back.
int32_t cmap_pool_replace_connections(struct cmap_pool *pool,
                                      uint64_t now,
                                      uint64_t over_nanos);

// The credential was replaced: the connections of the old one retire, and what is established from now on has the new one.
int32_t cmap_pool_renew_credential(struct cmap_pool *pool,
                                   uint64_t now);

// The machine was suspended, and goes on: available connections are checked before their next use.
int32_t cmap_pool_resume(struct cmap_pool *pool, uint64_t now);

// Has as many connections established as `connections` says, or minPoolSize with UINT32_MAX. `*warm_up` is its number; its end is the
// output CMAP_WARMED_UP with that number.
int32_t cmap_pool_warm_up(struct cmap_pool *pool,
                          uint64_t now,
                          uint32_t connections,
                          uint64_t *warm_up);

// Gives up a warm-up. `*found` is CMAP_CANCELLED, or CMAP_FINISHED: it had ended.
int32_t cmap_pool_cancel_warm_up(struct cmap_pool *pool, uint64_t now, uint64_t warm_up, uint32_t *found);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CMAP_H */
