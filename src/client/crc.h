/* Checksums of what passes. */
#ifndef GBC_CRC_H
#define GBC_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC32C; begins with 0. */
uint32_t gbc_crc32c(uint32_t crc, const void *data, size_t bytes);
/* Of A followed by B, from those of both; bytes: of B. */
uint32_t gbc_crc32c_join(uint32_t a, uint32_t b, uint64_t bytes);

#define GBC_SUM_HEAD 12

/* Of a body and of the tensor in it: where the body begins as a .npy or a safetensors file of one tensor, that is what
 * follows the header. Zeros are an empty one. */
struct gbc_sum {
    uint64_t bytes; /* that passed */
    unsigned char head[GBC_SUM_HEAD];
    uint64_t header_bytes; /* 0: it has none */
    uint32_t header_crc;
    uint32_t payload_crc; /* of all where there is no header */
};

void gbc_sum_add(struct gbc_sum *sum, const void *data, size_t bytes);
/* Of the tensor of so many bytes: false where what passed has no such tensor. */
bool gbc_sum_of(const struct gbc_sum *sum, uint64_t tensor_bytes, uint32_t *ret);

#endif
