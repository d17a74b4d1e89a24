#include "model/export.h"

#include <unistd.h>

#include "model/word.h"

static const char *const way_names[GB_EXPORT_WAYS] = {"vmm", "pool", "legacy", "memfd"};

const char *gb_export_way_name(enum gb_export_way way) {
    return (unsigned)way < GB_EXPORT_WAYS ? way_names[way] : "unknown";
}

int gb_export_way_find(const char *name, size_t len, enum gb_export_way *ret_way, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("way", way_names, GB_EXPORT_WAYS, name, len, &index, err) < 0)
        return -1;
    *ret_way = (enum gb_export_way)index;
    return 0;
}

void gb_export_done(struct gb_export *export) {
    if (export->fd >= 0)
        close(export->fd);
    export->fd = -1;
}
