#include "core/util/pinned.h"

#include "model/model.h"

#define PAGE_BYTES 4096u

void gb_pinned_init(struct gb_pinned *pinned, uint64_t limit_bytes) {
    pinned->limit_bytes = limit_bytes ? limit_bytes : GB_UNLIMITED;
    atomic_init(&pinned->used_bytes, 0);
}

static uint64_t whole_pages(uint64_t bytes) {
    uint64_t rest = bytes % PAGE_BYTES;

    return rest == 0 || bytes > UINT64_MAX - PAGE_BYTES ? bytes : bytes - rest + PAGE_BYTES;
}

static int refuse(const struct gb_pinned *pinned, uint64_t used, uint64_t bytes, struct gb_error *err) {
    gb_error_numbers(err, pinned->limit_bytes, used, bytes);
    return gb_error_set(
        err, GB_ERR_PINNED_LIMIT,
        "the daemon may page-lock %llu bytes of the host's memory (--max-pinned-bytes), %llu are locked, "
        "and %llu more are asked for; delete pinned buffers, or use kind \"pageable\"",
        (unsigned long long)pinned->limit_bytes, (unsigned long long)used, (unsigned long long)bytes);
}

static int check(const struct gb_pinned *pinned, uint64_t used, uint64_t bytes, struct gb_error *err) {
    if (bytes == 0 || (used <= pinned->limit_bytes && bytes <= pinned->limit_bytes - used))
        return 0;
    return refuse(pinned, used, bytes, err);
}

int gb_pinned_check(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    return check(pinned, atomic_load(&pinned->used_bytes), whole_pages(bytes), err);
}

/* Others may take at the same time: the number changes only if it still is what was looked at. */
int gb_pinned_take(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    uint64_t used = atomic_load(&pinned->used_bytes);
    uint64_t more = whole_pages(bytes);

    do {
        if (check(pinned, used, more, err) < 0)
            return -1;
    } while (!atomic_compare_exchange_weak(&pinned->used_bytes, &used, used + more));
    return 0;
}

void gb_pinned_give(struct gb_pinned *pinned, uint64_t bytes) {
    atomic_fetch_sub(&pinned->used_bytes, whole_pages(bytes));
}
