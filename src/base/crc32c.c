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

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* Remainders modulo the polynomial as CRC registers hold them: the highest bit is the coefficient of x^0. */
#define POLYNOMIAL 0x82f63b78u
#define ONE 0x80000000u
#define X_TO_THE_8 0x00800000u

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    uint32_t bit;

    for (bit = ONE; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b & 1 ? (b >> 1) ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

/* Each byte that follows multiplies what stands in the register by x^8. */
uint32_t gb_crc32c_join(uint32_t a, uint32_t b, uint64_t n) {
    uint32_t power = X_TO_THE_8;
    uint32_t shift = ONE;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            shift = multiply(shift, power);
        power = multiply(power, power);
    }
    return multiply(shift, a) ^ b;
}
