/* A streaming decoder of content codings, by zlib and libzstd. Not thread-safe. */
#ifndef GB_FORMAT_DECODE_H
#define GB_FORMAT_DECODE_H

#include <stddef.h>

#include "base/error.h"

/* gzip: RFC 1952, several members are one stream; deflate: the zlib format of RFC 1950, as RFC 9110 wants it; zstd: RFC
 * 8878, several frames are one stream. */
enum gb_coding { GB_CODING_GZIP, GB_CODING_DEFLATE, GB_CODING_ZSTD };

/* The largest window that RFC 9659 permits a sender, and that a decoder keeps. */
#define GB_ZSTD_WINDOW_LOG 23

struct gb_decoder;

/* Makes a decoder: some 10 to 45 KiB, and for zstd the window of the stream besides. Returns NULL with SATURATED when
 * memory is exhausted. */
struct gb_decoder *gb_decoder_new(enum gb_coding coding, struct gb_error *err);
void gb_decoder_free(struct gb_decoder *decoder); /* NULL is accepted */

/* Decodes (*in)[0..*in_n), which it moves on, into out[0..out_n), out_n > 0. *ret_made < out_n: all input is used up
 * and nothing is kept back; otherwise more may come without further input. Returns 0, or -1 with INVALID_ENCODING or
 * SATURATED. */
int gb_decoder_run(struct gb_decoder *decoder, const char **in, size_t *in_n, char *out, size_t out_n, size_t *ret_made,
                   struct gb_error *err);

/* Ends the input. Returns 0 when the stream is complete, or -1 with INVALID_ENCODING. */
int gb_decoder_end(const struct gb_decoder *decoder, struct gb_error *err);

#endif
