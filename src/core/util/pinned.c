#include "core/util/pinned.h"

#include "model/model.h"

#define PAGE_BYTES 4096u

void gb_pinned_init(struct gb_pinned *pinned, uint64_t limit_bytes) {
    pinned->slots_bytes = 0;
    pinned->limit_bytes = limit_bytes ? limit_bytes : GB_UNLIMITED;
    atomic_init(&pinned->used_bytes, 0);
}

static uint64_t whole_pages(uint64_t bytes) {
    uint64_t rest = bytes % PAGE_BYTES;

    return rest == 0 || bytes > UINT64_MAX - PAGE_BYTES ? bytes : bytes - rest + PAGE_BYTES;
}

/* More than there would be if all buffers were deleted. */
static int refuse_for_good(const struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    unsigned long long limit = pinned->limit_bytes;

    if (err)
        err->hopeless = true;
    if (pinned->slots_bytes == 0)
        return gb_error_set(
            err, GB_ERR_PINNED_LIMIT,
            "the daemon may page-lock %llu bytes of the host's memory (--max-pinned-bytes), and %llu are "
            "asked for; start it with a larger --max-pinned-bytes",
            limit, (unsigned long long)bytes);
    return gb_error_set(err, GB_ERR_PINNED_LIMIT,
                        "the daemon may page-lock %llu bytes of the host's memory (--max-pinned-bytes), its slots hold "
                        "%llu of them (--slots-bytes), and %llu are asked for; start it with a larger "
                        "--max-pinned-bytes or fewer --slots-bytes",
                        limit, (unsigned long long)pinned->slots_bytes, (unsigned long long)bytes);
}

static int refuse(const struct gb_pinned *pinned, uint64_t used, uint64_t bytes, struct gb_error *err) {
    gb_error_numbers(err, pinned->limit_bytes, used, bytes);
    if (bytes > pinned->limit_bytes - pinned->slots_bytes)
        return refuse_for_good(pinned, bytes, err);
    return gb_error_set(
        err, GB_ERR_PINNED_LIMIT,
        "the daemon may page-lock %llu bytes of the host's memory (--max-pinned-bytes), %llu are locked, "
        "and %llu more are asked for; delete pinned buffers or release host sides of mirrored ones",
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

int gb_pinned_take_slots(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err) {
    if (gb_pinned_take(pinned, bytes, err) < 0)
        return -1;
    pinned->slots_bytes = whole_pages(bytes);
    return 0;
}

void gb_pinned_give_slots(struct gb_pinned *pinned) {
    gb_pinned_give(pinned, pinned->slots_bytes);
    pinned->slots_bytes = 0;
}

void gb_pinned_give(struct gb_pinned *pinned, uint64_t bytes) {
    atomic_fetch_sub(&pinned->used_bytes, whole_pages(bytes));
}
