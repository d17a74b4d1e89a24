/* A new session of a node that is in a fleet: its name is made sure of in the directory before it is made here. */
#ifndef GB_API_RESOURCES_SESSIONS_H
#define GB_API_RESOURCES_SESSIONS_H

#include <jansson.h>

#include "api/pipeline/async.h"
#include "core/core.h"
#include "http/http.h"

enum gb_registers {
    GB_REGISTER_NOT,  /* it is only refused if the directory, when the node is joined, has one of that name elsewhere */
    GB_REGISTER_NEW,  /* it is put into the directory first */
    GB_REGISTER_TAKE, /* it is taken over from a node that is away, with labels and quota; params has the name alone */
    GB_REGISTER_TAKE_EMPTY /* the same, though nodes have copies of its sealed buffers */
};

/* Makes the session, as gb_session_create; the reply of success is made by `reply`. The reference to params->labels is
 * taken, also on failure. SESSION_EXISTS comes with the Location of the other one. */
enum gb_step gb_register_session(struct gb_http_request *request, struct gb_http_response *response,
                                 const struct gb_session_params *params, enum gb_registers registers,
                                 gb_async_reply *reply, struct gb_error *err);

/* The reply to a call that made or changed a session. */
enum gb_step gb_session_reply(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                              struct gb_error *err);

/* Whether the fields of a body make a session: 0, or -1 with the reason why not. */
int gb_session_fields_check(const json_t *body, struct gb_error *err);

#endif
