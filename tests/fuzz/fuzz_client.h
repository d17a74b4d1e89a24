/* A client that sends what an input says, in the pieces that it says. */
#ifndef GB_FUZZ_CLIENT_H
#define GB_FUZZ_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GB_FUZZ_BYTES_MAX 131072 /* of an input, repetitions done */
#define GB_FUZZ_PATIENCE_NS (20 * GB_NS_PER_S)

/* What an input stands for, behind its first two bytes; out has room for GB_FUZZ_BYTES_MAX. */
size_t gb_fuzz_expand(const uint8_t *data, size_t size, char *out);

/* False when the server had enough before the end. way, seed: the input's first two bytes. */
bool gb_fuzz_send(int fd, const char *data, size_t n, uint8_t way, uint8_t seed);

/* Until the server has read all, or has something to say, or for a tenth of a second: it may have stopped to read. */
void gb_fuzz_until_taken(int fd);

/* Reads on. False when the connection does not end. */
bool gb_fuzz_ends(int fd);

#endif
