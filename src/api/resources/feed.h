/* Events of the feed as text. */
#ifndef GB_API_RESOURCES_FEED_H
#define GB_API_RESOURCES_FEED_H

#include "api/context.h"
#include "base/json_writer.h"

/* gb_http_server_config.feed. */
extern const struct gb_http_feed_hooks gb_api_feed_hooks;

#endif
