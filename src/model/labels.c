#include "model/labels.h"

#include <string.h>

int gb_labels_make(const char *text, struct gb_text **ret_labels, struct gb_error *err) {
    struct gb_text *labels = NULL;

    if (text[0] != '\0' && strcmp(text, "{}") != 0) {
        labels = gb_text_new(text, strlen(text));
        if (!labels)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory for the labels; try again later");
    }
    *ret_labels = labels;
    return 0;
}

const char *gb_labels_text(const struct gb_text *labels) {
    return labels ? gb_text_s(labels) : "{}";
}
