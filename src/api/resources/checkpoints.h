/* Finding the checkpoint of a path. */
#ifndef GB_API_RESOURCES_CHECKPOINTS_H
#define GB_API_RESOURCES_CHECKPOINTS_H

#include "core/core.h"
#include "http/http.h"

/* Reads the checkpoint of the path, as far as the token may use it with that scope: one of another session is reported
 * like one that does not exist. Returns 0, or -1. */
int gb_path_checkpoint(const struct gb_http_request *request, enum gb_scope scope, struct gb_checkpoint_view *ret,
                       struct gb_error *err);

#endif
