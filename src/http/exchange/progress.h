/* How far a reply has come with its client.
 *
 * Bytes in the kernel's queue are no progress: a client that takes nothing is as far after the first megabyte as before
 * it. Bytes are taken when the client's system has acknowledged them (TCP), or the client has read them (UNIX). */
#ifndef GB_HTTP_EXCHANGE_PROGRESS_H
#define GB_HTTP_EXCHANGE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct gb_http_server_config;

/* Zeroed: nothing is known yet, and the first check begins it. */
struct gb_progress {
    bool counted; /* out is known, in bytes of the reply that the kernel was given; else it is 0 */
    bool looked;
    uint64_t out;      /* set by the sender */
    int64_t at;        /* of the last check: rises with what is taken */
    uint64_t taken;    /* bytes, since it began */
    uint64_t began_ns; /* 0: no check yet */
    uint64_t moved_ns;
    uint64_t looked_ns;
};

/* Begins, for a reply whose sender counts. */
void gb_progress_begin(struct gb_progress *p, uint64_t now_ns);
/* Asks the kernel, with one system call. local: a UNIX socket. Expected each second or more often: if checks come
 * later, two seconds count of the time between. */
void gb_progress_look(struct gb_progress *p, int fd, bool local, uint64_t now_ns);
/* The time since the last check does not count against the client: there was nothing that it could take. */
void gb_progress_excuse(struct gb_progress *p, uint64_t now_ns);
/* Whether, as of the last check, nothing was taken for stall_timeout_s, or less than min_rate_bytes_s on average. */
bool gb_progress_slow(const struct gb_progress *p, const struct gb_http_server_config *config, uint64_t now_ns);

/* Bytes that the kernel was given and the client has not taken; of a UNIX socket, the memory that they fill. */
uint64_t gb_socket_queued(int fd);
/* From now on, closing the socket drops its queue at once: a client that takes nothing would keep it. */
void gb_socket_abandon(int fd);

#endif
