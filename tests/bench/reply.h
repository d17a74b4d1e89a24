/* The part of HTTP that a load generator needs: the head of a reply. */
#ifndef GB_BENCH_REPLY_H
#define GB_BENCH_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_ETAG_MAX 128

struct bench_reply {
    int status;
    uint64_t length; /* of the body; 0 for 1xx, 204 and 304 */
    bool close;      /* the server will close the connection */
    char etag[BENCH_ETAG_MAX];
};

/* Returns the bytes of the head, 0 if it is not complete, or -1 if it is no HTTP/1.1 reply or has no definite
 * length. */
int bench_reply_parse(const char *data, size_t bytes, struct bench_reply *ret);

#endif
