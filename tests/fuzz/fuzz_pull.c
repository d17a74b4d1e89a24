/* What a source of a pull answers: the head, and the record of the buffer behind it. A head is read the same from its
 * own bytes alone, and never before it is whole. A record that is taken agrees with itself. */
#include <string.h>

#include "fleet/pull/source.h"
#include "fuzz.h"

const char *const gb_fuzz_seeds[] = {
    "HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n"
    "{\"bytes\":24,\"dtype\":\"float32\",\"shape\":[2,3],\"generation\":7,\"labels\":{\"a\":\"b\"}}",
    "HTTP/1.1 206 Partial Content\r\nETag: \"1.1.a\"\r\nContent-Length: 100\r\nContent-Range: bytes 5-104/1000\r\n"
    "Gpubuf-Crc32c: 0a1b2c3d\r\nGpubuf-Generation: 7\r\n\r\n",
    "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:7070/v1/sessions/s/buffers/b?via=1.1&ticket=a\r\nRetry-After: 5\r\n"
    "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
    NULL,
};

static void check_record(const char *text, size_t n) {
    struct gb_pull_source source = {.bytes = 0};
    uint64_t bytes;

    if (gb_pull_record_read(text, n, &source, NULL) == 0) {
        FUZZ_ASSERT(gb_shape_bytes(&source.shape, source.dtype, &bytes, NULL) == 0 && bytes == source.bytes);
        FUZZ_ASSERT(source.shape.dims <= GB_DIMS_MAX);
        FUZZ_ASSERT(strlen(gb_labels_text(source.labels)) < GB_LABELS_MAX);
    }
    gb_text_unref(source.labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    struct gb_pull_head again;
    struct gb_pull_head head;
    int n = gb_pull_head_read(text, size, &head);

    check_record(text + (n > 0 ? n : 0), size - (n > 0 ? (size_t)n : 0));
    if (n <= 0)
        return 0;
    FUZZ_ASSERT((size_t)n <= size && head.status >= 100 && head.status <= 999);
    FUZZ_ASSERT(!head.has_range || (head.first <= head.last && head.last < head.total));
    FUZZ_ASSERT(strlen(head.tag) < sizeof(head.tag) && strlen(head.location) < sizeof(head.location));
    FUZZ_ASSERT(!strpbrk(head.tag, "\r\n") && !strpbrk(head.location, "\r\n"));
    FUZZ_ASSERT(gb_pull_head_read(text, (size_t)n, &again) == n && memcmp(&head, &again, sizeof(head)) == 0);
    FUZZ_ASSERT(gb_pull_head_read(text, (size_t)n - 1, &again) == 0);
    return 0;
}
