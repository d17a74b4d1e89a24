/* The log of requests: a line of JSON for each in --access-log, and one in the daemon's own log for each that was
 * refused for want of a right, or failed by a fault of the daemon. */
#ifndef GB_DAEMON_REQUEST_LOG_H
#define GB_DAEMON_REQUEST_LOG_H

#include "base/log.h"
#include "daemon/options.h"
#include "http/http.h"

struct gb_request_log;

/* Whether that value of --access-log names a file. */
bool gb_request_log_is_file(const char *name);

/* Opens the file of --access-log, if it is given, and the queues. log is copied. Before the server starts, after the
 * cage; at most one of a process. Returns 0, or -1 with INTERNAL. */
int gb_request_log_open(const struct gb_options *options, const struct gb_log *log, struct gb_request_log **ret,
                        struct gb_error *err);
/* After the server has stopped. Writes what waits. NULL is accepted. */
void gb_request_log_close(struct gb_request_log *requests);

/* The hook `ended` of gb_http_server_config, whose app is the api: gb_api_ended is called as well. [never blocks] */
void gb_request_log_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end);

/* Logs lines that were lost, once a minute at most. */
void gb_request_log_check(struct gb_request_log *requests);
/* Opens the file again, which logrotate has renamed. */
void gb_request_log_reopen(struct gb_request_log *requests);

#endif
