/* Requests for registered sessions of this node, around every handler: whether the session is still the node's own. */
#ifndef GB_API_MIDDLEWARE_OWNERSHIP_H
#define GB_API_MIDDLEWARE_OWNERSHIP_H

#include "core/core.h"
#include "http/http.h"

/* gb_api_pipeline for a node that is in a fleet. bond: of the session that is named, if it is here; NULL: none.
 *
 * A request is refused with SUPERSEDED when it says that it knows of a higher epoch (the field Gpubuf-Epoch), unless
 * the directory has just denied that; when the directory has said that the session is another node's; and when it
 * changes a session that was set aside; with OWNER_UNCERTAIN when the session stops at a partition and the
 * node's lease may be over. A change is looked at again before it is answered. */
enum gb_step gb_ownership_pipeline(gb_http_handler *handler, struct gb_http_request *request,
                                   const struct gb_session_bond *bond, struct gb_http_response *response,
                                   struct gb_error *err);

#endif
