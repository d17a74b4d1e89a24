/* Labels of a buffer or session: the text of a JSON object that is opaque below api. They never change, and are shared
 * by all copies of a record. NULL stands for none. */
#ifndef GB_MODEL_LABELS_H
#define GB_MODEL_LABELS_H

#include "base/error.h"
#include "base/text.h"

#define GB_LABELS_MAX 2048 /* bytes of the JSON text, NUL included */

/* *ret_labels: a reference to labels with a copy of that text; NULL, without an allocation, for "{}" and "". Returns 0,
 * or -1 with SATURATED when memory is exhausted. */
int gb_labels_make(const char *text, struct gb_text **ret_labels, struct gb_error *err);

/* "{}" for NULL. */
const char *gb_labels_text(const struct gb_text *labels);

#endif
