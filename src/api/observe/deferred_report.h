/* Reports that are large: few are made at a time. */
#ifndef GB_API_OBSERVE_DEFERRED_REPORT_H
#define GB_API_OBSERVE_DEFERRED_REPORT_H

#include "api/context.h"
#include "api/request/query.h"

/* Such replies at a time; one more is SATURATED. */
#define GB_DEFERRED_REPORTS_MAX 4
/* Entries of the log of allocations in one reply, the newest: some 75 MB when every name is as long as permitted. */
#define GB_DEFERRED_REPORT_ENTRIES_MAX 131072

struct gb_deferred_report {
    struct gb_api *api;
    uint64_t params[6]; /* the maker's, as the names */
    struct gb_name names[2];
    const char *content_type; /* static */
    char *body;               /* malloc'd; the maker's result */
    size_t len;
    char next_cursor[GB_CURSOR_SIZE]; /* the maker's too, for a Link; "": no page follows */
};

/* Fills body and len on a thread of the core. Returns 0 or -1. */
typedef int gb_deferred_report_make(struct gb_deferred_report *report, struct gb_error *err);

/* The rest of a handler: replies 200 with the text of makes, as content_type. The reply varies with Accept. params are
 * copied. */
enum gb_step gb_deferred_report_start(struct gb_http_request *request, gb_deferred_report_make *makes,
                                      const struct gb_deferred_report *params, struct gb_error *err);

#endif
