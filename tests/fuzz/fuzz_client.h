/* A client that sends the bytes of an input, in pieces that the input chooses. */
#ifndef GB_FUZZ_CLIENT_H
#define GB_FUZZ_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GB_FUZZ_BYTES_MAX 131072 /* of an input, after repetitions are expanded */
#define GB_FUZZ_PATIENCE_NS (20 * GB_NS_PER_S)

/* Expands an input after its first two bytes; out has room for GB_FUZZ_BYTES_MAX. */
size_t gb_fuzz_expand(const uint8_t *data, size_t size, char *out);

/* Sends the bytes. Returns false if the server closed before the end. way, seed: the input's first two bytes. */
bool gb_fuzz_send(int fd, const char *data, size_t n, uint8_t way, uint8_t seed);

/* Waits until the server has read all or has sent something, at most a tenth of a second: the server may have stopped
 * reading. */
void gb_fuzz_until_taken(int fd);

/* Reads to the end. Returns false if the connection does not end. */
bool gb_fuzz_ends(int fd);

#endif
