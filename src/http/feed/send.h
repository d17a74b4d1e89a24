/* What a listener is sent, and when. All on the feed's thread. */
#ifndef GB_HTTP_FEED_SEND_H
#define GB_HTTP_FEED_SEND_H

#include "http/feed/feed.h"

/* Sends what there is for it as far as the socket takes it. False: it is of no use any more. */
bool gb_feed_listener_run(struct gb_http_feed *feed, struct gb_feed_listener *l, uint64_t now_ns);
/* It has got all there is. */
bool gb_feed_listener_level(const struct gb_http_feed *feed, const struct gb_feed_listener *l);
/* A last word, where it can be written without breaking into another. */
void gb_feed_listener_farewell(struct gb_http_feed *feed, struct gb_feed_listener *l);

#endif
