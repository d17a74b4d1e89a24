/* Statistics over time, of any resource that has them. */
#ifndef GB_API_OBSERVE_HISTORY_H
#define GB_API_OBSERVE_HISTORY_H

#include "core/core.h"
#include "http/http.h"

/* Tells whether ?since=, ?until= or ?step= is given. */
bool gb_history_wanted(const struct gb_http_request *request);

/* The whole handler of such a request. */
enum gb_step gb_history_reply(struct gb_http_request *request, const struct gb_history_key *key, struct gb_error *err);

#endif
