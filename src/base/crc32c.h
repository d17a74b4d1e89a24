/* CRC32C (Castagnoli), as iSCSI and SSE4.2 compute it. The arithmetic is ISA-L's. */
#ifndef GB_BASE_CRC32C_H
#define GB_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc (0 at the start) over data[0..n). gb_crc32c(0, "123456789", 9) == 0xe3069283. */
uint32_t gb_crc32c(uint32_t crc, const void *data, size_t n);

/* The checksum of A followed by B, from those of A and B; n: bytes of B. */
uint32_t gb_crc32c_join(uint32_t a, uint32_t b, uint64_t n);

#endif
