#include "model/stored.h"

#include "model/word.h"

static const char *const names[GB_DURABILITY_COUNT] = {
    [GB_DURABILITY_NONE] = "none", [GB_DURABILITY_BEHIND] = "behind", [GB_DURABILITY_SYNC] = "sync"};

const char *gb_durability_name(enum gb_durability durability) {
    return (unsigned)durability < GB_DURABILITY_COUNT ? names[durability] : "unknown";
}

static const char *const spills[GB_SPILL_COUNT] = {
    [GB_SPILL_NEVER] = "never", [GB_SPILL_HOST] = "host", [GB_SPILL_DISK] = "disk"};

const char *gb_spill_name(enum gb_spill spill) {
    return (unsigned)spill < GB_SPILL_COUNT ? spills[spill] : "unknown";
}

int gb_spill_parse(const char *name, size_t len, enum gb_spill *ret, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("spill", spills, GB_SPILL_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret = (enum gb_spill)index;
    return 0;
}

int gb_durability_parse(const char *name, size_t len, enum gb_durability *ret, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("durability", names, GB_DURABILITY_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret = (enum gb_durability)index;
    return 0;
}
