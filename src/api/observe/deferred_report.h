/* Long answers that are made on a thread of the core's, while the request waits: no HTTP loop walks thousands of things. */
#ifndef GB_API_OBSERVE_DEFERRED_REPORT_H
#define GB_API_OBSERVE_DEFERRED_REPORT_H

#include "api/context.h"

/* At a time; one more is SATURATED. */
#define GB_DEFERRED_REPORTS_MAX 4
/* Entries of the log of allocations in one answer, the newest: some 75 MB where every name is as long as it may be. */
#define GB_DEFERRED_REPORT_ENTRIES_MAX 131072

struct gb_deferred_report {
    struct gb_api *api;
    uint64_t params[4];       /* the maker's */
    const char *content_type; /* static */
    char *body;               /* malloc'd; the maker's result */
    size_t len;
};

/* Fills body and len. On a thread of the core's. 0 or -1. */
typedef int gb_deferred_report_make(struct gb_deferred_report *report, struct gb_error *err);

/* The whole rest of a handler: answers 200 with what make fills, as content_type. The answer varies with Accept. params are copied. */
enum gb_step gb_deferred_report_start(struct gb_http_request *request, struct gb_http_response *response,
                                      gb_deferred_report_make *make, const struct gb_deferred_report *params,
                                      struct gb_error *err);

#endif
