/* The head of an answer of HTTP/1.1, as a client reads it. Pure. */
#ifndef GB_PULL_HEAD_H
#define GB_PULL_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GB_PULL_HEAD_MAX 16384
#define GB_PULL_LOCATION_SIZE 2048

struct gb_pull_head {
    int status;
    bool has_length;
    uint64_t length;
    bool coded;    /* chunked, compressed or the like: the bytes behind it are not the content's own */
    bool closes;   /* no other answer comes over this connection */
    char tag[128]; /* with its quotes; "": none, or too long */
    bool has_range;
    uint64_t first; /* of Content-Range: bytes first-last/total */
    uint64_t last;
    uint64_t total;
    unsigned retry_after_s;               /* 0: none in seconds */
    char location[GB_PULL_LOCATION_SIZE]; /* "": none, or too long */
    bool has_crc32c;
    uint32_t crc32c;
    bool has_generation;
    uint64_t generation;
    bool registered; /* of a session that a fleet knows, or of a copy of it */
};

/* Reads a head that begins at bytes[0]. Returns its length; 0: it is not whole yet; -1: it is no head of HTTP/1.x, or
 * has contradictions. */
int gb_pull_head_read(const char *bytes, size_t n, struct gb_pull_head *ret);

#endif
