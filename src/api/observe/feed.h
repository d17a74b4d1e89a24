/* Events of the feed as text. */
#ifndef GB_API_OBSERVE_FEED_H
#define GB_API_OBSERVE_FEED_H

#include "api/context.h"
#include "base/json_writer.h"

/* Writes one event as a JSON object. */
void gb_render_notice(struct gb_json_writer *out, const char *key, const struct gb_api *api,
                      const struct gb_notice *notice);

/* Makes the event that tells a reader of a gap: the events after `after`, up to `through`, are no longer all in the
 * log. why may be NULL. */
struct gb_notice gb_notice_of_gap(int64_t after, int64_t through, const char *why);

/* Appends the event as one of text/event-stream: id, event, data, empty line. A gap that does not come from the log has
 * after and no id of its own (id 0). */
void gb_render_event_text(struct gb_json_writer *out, const struct gb_api *api, const struct gb_notice *notice);

/* gb_http_server_config.feed. */
extern const struct gb_http_feed_hooks gb_api_feed_hooks;

#endif
