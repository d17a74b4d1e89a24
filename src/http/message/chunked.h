/* The framing of a chunked body (RFC 9112, section 7.1), one byte after the other.
 *
 * libmicrohttpd 0.9.75 does not bound the lines between chunks. Requests with a chunked body leave it at their header,
 * and this decoder takes its place. The decoder keeps no bytes, so that no input makes it grow. */
#ifndef GB_HTTP_MESSAGE_CHUNKED_H
#define GB_HTTP_MESSAGE_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GB_CHUNKED_DIGITS_MAX 16      /* of a chunk's size */
#define GB_CHUNKED_EXTENSION_MAX 1024 /* bytes between a chunk's size and the end of its line */
#define GB_CHUNKED_TRAILER_MAX 8192   /* bytes of all trailer fields */

enum gb_chunked_state {
    GB_CHUNKED_SIZE,          /* digits of a chunk's size */
    GB_CHUNKED_BLANK,         /* blanks behind the digits; only an extension may follow */
    GB_CHUNKED_EXTENSION,     /* up to CR */
    GB_CHUNKED_SIZE_LF,       /* the LF of that line */
    GB_CHUNKED_DATA,          /* left bytes of data, which are not framing */
    GB_CHUNKED_DATA_CR,       /* the line end behind them */
    GB_CHUNKED_DATA_LF,       /* */
    GB_CHUNKED_TRAILER,       /* the beginning of a trailer field, or of the empty line that ends the body */
    GB_CHUNKED_TRAILER_NAME,  /* */
    GB_CHUNKED_TRAILER_VALUE, /* */
    GB_CHUNKED_TRAILER_LF,    /* */
    GB_CHUNKED_END_LF,        /* */
    GB_CHUNKED_DONE           /* the body is whole */
};

/* Zeroed: at the beginning of a body. */
struct gb_chunked {
    enum gb_chunked_state state;
    uint64_t left;    /* of the present chunk's data */
    unsigned digits;  /* of its size, so far */
    unsigned skipped; /* bytes of the present extension, or of all trailer fields */
};

/* Reads framing at s[0..n) until data begins, the body ends, or n bytes are read. Returns the number of bytes read.
 * Returns -1, and what was wrong in *ret_why (static text), if the bytes are no framing. */
ssize_t gb_chunked_read(struct gb_chunked *c, const char *s, size_t n, const char **ret_why);

/* Counts n bytes of data, at most c->left; only in state DATA. */
void gb_chunked_took(struct gb_chunked *c, uint64_t n);

#endif
