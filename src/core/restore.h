/* What the database has, made at the start: pools, sessions, buffers. */
#ifndef GB_CORE_RESTORE_H
#define GB_CORE_RESTORE_H

#include <stdbool.h>

#include "base/error.h"

struct gb_core;

int gb_core_restore(struct gb_core *core, struct gb_error *err);

bool gb_core_has_default(struct gb_core *core);

void gb_core_make_default(struct gb_core *core); /* tries once, waits for nothing */

#endif
