/* The reply to a write that makes or changes one buffer. */
#ifndef GB_API_RESOURCES_WRITES_H
#define GB_API_RESOURCES_WRITES_H

#include "base/json_writer.h"
#include "core/core.h"
#include "http/http.h"

/* 201 or 200 with the buffer's members, and those that `more` adds, which gets call. NULL: none. */
enum gb_step gb_reply_written(struct gb_http_request *request, const struct gb_buffer_call *call,
                              void (*more)(struct gb_json_writer *out, const void *call),
                              struct gb_http_response *response, struct gb_error *err);

#endif
