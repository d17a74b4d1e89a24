#include "core/stored/persist.h"

#include <stdlib.h>

void gb_persist_done(struct gb_persist *persist, bool written, bool unknown) {
    if (!written && !unknown)
        gb_stored_condemn(persist->stored);
    gb_stored_unref(persist->stored);
    free(persist->data);
    *persist = (struct gb_persist){.stored = NULL};
}
