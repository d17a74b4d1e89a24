/* Sending to one listener. All on the feed's thread. */
#ifndef GB_HTTP_FEED_SEND_H
#define GB_HTTP_FEED_SEND_H

#include "http/feed/feed.h"

/* Sends the listener's frames as far as its socket takes them. False: the connection cannot be used any more. */
bool gb_feed_listener_run(struct gb_http_feed *feed, struct gb_feed_listener *l, uint64_t now_ns);
/* Whether it has got all frames that there are. */
bool gb_feed_listener_level(const struct gb_http_feed *feed, const struct gb_feed_listener *l);
/* Sends the farewell, if that does not break into another frame. */
void gb_feed_listener_farewell(struct gb_http_feed *feed, struct gb_feed_listener *l);

#endif
