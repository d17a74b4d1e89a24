#include "model/stored.h"

#include "model/word.h"

static const char *const names[GB_DURABILITY_COUNT] = {
    [GB_DURABILITY_NONE] = "none", [GB_DURABILITY_BEHIND] = "behind", [GB_DURABILITY_SYNC] = "sync"};

const char *gb_durability_name(enum gb_durability durability) {
    return (unsigned)durability < GB_DURABILITY_COUNT ? names[durability] : "unknown";
}

int gb_durability_parse(const char *name, size_t len, enum gb_durability *ret, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("durability", names, GB_DURABILITY_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret = (enum gb_durability)index;
    return 0;
}
