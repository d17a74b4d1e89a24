/* The tokens in force: those of the database, and beside them those of --tokens-file. Where two would be the same, the
 * database wins. What cannot be read leaves those known in force. The start loads them; the main loop loads them again
 * when they change. */
#ifndef GB_DAEMON_TOKENS_H
#define GB_DAEMON_TOKENS_H

#include "daemon/daemon.h"

/* Reads the file of --tokens-file if it has changed, or if asked. A file that cannot be read leaves those known as they
 * are. *ret_changed: other tokens are known now. */
int gb_daemon_read_tokens_file(struct gb_daemon *daemon, bool asked, bool *ret_changed, struct gb_error *err);

/* Tokens as they were loaded. */
struct gb_token_count {
    size_t all; /* that have expired included */
    size_t in_force;
    char expired[256]; /* the names of the others, with commas, cut to fit */
};

/* Whether every client is refused while there is no token: by a daemon that is exposed or has a file, and by one behind
 * a proxy whose last token is gone. */
bool gb_daemon_is_closed(const struct gb_daemon *daemon);
/* Reads the tokens of the database again, and puts them and those of the file in force. A token of the file that has
 * the name, the secret or the subject of one of the database stays out, which is logged. */
int gb_daemon_load_tokens(struct gb_daemon *daemon, struct gb_token_count *ret, struct gb_error *err);
void gb_daemon_log_tokens(const struct gb_daemon *daemon, const struct gb_token_count *count);

/* Loads what has changed, or with `asked` all, and ends what tokens hold whose time has passed. */
void gb_daemon_reload_tokens(struct gb_daemon *daemon, bool asked);
/* Milliseconds until the next reload: tick_ms, or fewer if a token's time ends before. */
int gb_daemon_token_patience_ms(const struct gb_daemon *daemon, int tick_ms);

#endif
