#include "client/crc.h"

#include <isa-l/crc.h>
#include <string.h>

#define STEP ((size_t)1 << 30) /* ISA-L counts in int */
#define POLYNOMIAL 0x82f63b78u /* bits reversed: x^0 is the highest */
#define HEADER_MAX ((uint64_t)128 << 20)

uint32_t gbc_crc32c(uint32_t crc, const void *data, size_t bytes) {
    unsigned char *at = (unsigned char *)(uintptr_t)data;

    crc = ~crc;
    for (; bytes > STEP; bytes -= STEP, at += STEP)
        crc = crc32_iscsi(at, (int)STEP, crc);
    return ~crc32_iscsi(at, (int)bytes, crc);
}

/* a * b modulo the polynomial. */
static uint32_t times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    unsigned i;

    for (i = 0; i < 32; i++) {
        if (a & (0x80000000u >> i))
            product ^= b;
        b = (b >> 1) ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

uint32_t gbc_crc32c_join(uint32_t a, uint32_t b, uint64_t bytes) {
    uint32_t square = 0x00800000u; /* x^8: one byte further */

    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1)
            a = times(a, square);
        square = times(square, square);
    }
    return a ^ b;
}

/* --- headers ------------------------------------------------------------------------------------------------------ */

static uint64_t little(const unsigned char *at, unsigned bytes) {
    uint64_t value = 0;

    while (bytes-- > 0)
        value = value << 8 | at[bytes];
    return value;
}

/* How long the header is that begins so; 0: it is none. */
static uint64_t header_of(const unsigned char head[GBC_SUM_HEAD]) {
    uint64_t n = little(head, 8);

    if (memcmp(head, "\x93NUMPY", 6) == 0)
        return head[6] == 1 ? 10 + little(head + 8, 2) : 12 + little(head + 8, 4);
    return head[8] == '{' && n > 4 && n < HEADER_MAX ? 8 + n : 0;
}

static void add_to_header(struct gbc_sum *sum, const unsigned char **data, size_t *bytes) {
    uint64_t left = sum->header_bytes - sum->bytes;
    size_t n = *bytes < left ? *bytes : (size_t)left;

    sum->header_crc = gbc_crc32c(sum->header_crc, *data, n);
    sum->bytes += n;
    *data += n;
    *bytes -= n;
}

void gbc_sum_add(struct gbc_sum *sum, const void *data, size_t bytes) {
    const unsigned char *at = data;

    while (bytes > 0 && sum->bytes < GBC_SUM_HEAD) {
        sum->head[sum->bytes++] = *at;
        sum->payload_crc = gbc_crc32c(sum->payload_crc, at++, 1);
        bytes--;
        if (sum->bytes == GBC_SUM_HEAD && (sum->header_bytes = header_of(sum->head)) > 0) {
            sum->header_crc = sum->payload_crc;
            sum->payload_crc = 0;
            if (sum->header_bytes < GBC_SUM_HEAD)
                sum->header_bytes = GBC_SUM_HEAD;
        }
    }
    if (bytes > 0 && sum->bytes < sum->header_bytes)
        add_to_header(sum, &at, &bytes);
    if (bytes > 0)
        sum->payload_crc = gbc_crc32c(sum->payload_crc, at, bytes);
    sum->bytes += bytes;
}

bool gbc_sum_of(const struct gbc_sum *sum, uint64_t tensor_bytes, uint32_t *ret) {
    uint64_t header = sum->bytes < sum->header_bytes ? sum->bytes : sum->header_bytes;

    if (tensor_bytes == sum->bytes) /* no header after all, only bytes that look like one */
        *ret = gbc_crc32c_join(sum->header_crc, sum->payload_crc, sum->bytes - header);
    else if (header > 0 && tensor_bytes == sum->bytes - header)
        *ret = sum->payload_crc;
    else
        return false;
    return true;
}
