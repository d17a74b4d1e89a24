/* ?label=KEY or ?label=KEY=VALUE: which labels a request asks for. */
#ifndef GB_API_REQUEST_LABEL_H
#define GB_API_REQUEST_LABEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "http/http.h"
#include "model/model.h"

/* Zero-initialised, all labels fit. */
struct gb_label_query {
    size_t len;
    char text[GB_LABELS_MAX]; /* how the label begins in a text of labels: "key": or "key":"value" */
};

/* Reads ?label=; without it *ret becomes empty. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_label_query_read(const struct gb_http_request *request, struct gb_label_query *ret, struct gb_error *err);

/* Whether that label is among these, which are text that gb_json_labels wrote. Costs no allocation. [any thread] */
bool gb_label_query_fits(const struct gb_label_query *query, const char *labels);

#endif
