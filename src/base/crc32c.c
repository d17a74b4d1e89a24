#include "base/crc32c.h"

#include <isa-l/crc.h>

/* ISA-L takes the length as an int. */
#define STEP ((size_t)1 << 30)

uint32_t gb_crc32c(uint32_t crc, const void *data, size_t n) {
    unsigned char *at = (unsigned char *)(uintptr_t)data;

    crc = ~crc;
    while (n > 0) {
        size_t step = n < STEP ? n : STEP;

        crc = crc32_iscsi(at, (int)step, crc);
        at += step;
        n -= step;
    }
    return ~crc;
}
