/* Tokens that a file provides (--tokens-file).
 *
 * A line gives one token by words of the form key=value, of which values may stand in double quotes: name, scope,
 * secret or hash (the SHA-256 of the secret, in hexadecimal), session, prefix, expires, subject. "#" begins a comment.
 * A file that begins with "[" or "{" has JSON objects with the same keys instead, in a list or one after another. */
#ifndef GB_DAEMON_TOKENS_FILE_H
#define GB_DAEMON_TOKENS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/error.h"
#include "daemon/tokens_index.h"
#include "model/model.h"

/* A file with more is refused. */
#define GB_TOKENS_FILE_MAX 10000

/* How the file looks. */
struct gb_tokens_look {
    bool there;
    unsigned long long device;
    unsigned long long inode;
    long long size;
    struct timespec modified;
    struct timespec changed;
};

/* The tokens of the file as it was last read without an error. Zero-initialised is empty. */
struct gb_tokens_file {
    struct gb_token_rec *recs;
    unsigned *lines; /* at which each begins */
    size_t count;
    struct gb_tokens_index index;
    struct gb_tokens_look opened; /* when it was last opened */
    struct gb_tokens_look seen;   /* when it was last looked at, */
    uint64_t seen_ns;             /* as it is since then */
};

/* Whether the file looks other than when it was last opened, and has looked so for half a second: one that is being
 * written is left alone. */
bool gb_tokens_file_changed(struct gb_tokens_file *file, const char *path, uint64_t now_ns);

/* Reads all of it. On failure the tokens stay as they are. INVALID_ARGUMENT: the file, its mode or a line is refused;
 * the text names the line, and nothing of what stands in it but keys and names. */
int gb_tokens_file_read(struct gb_tokens_file *file, const char *path, struct gb_error *err);
/* Where the token, one of the file's, begins. */
unsigned gb_tokens_file_line(const struct gb_tokens_file *file, const struct gb_token_rec *rec);
void gb_tokens_file_done(struct gb_tokens_file *file);

/* --- between the two forms ---------------------------------------------------------------------------------------- */

enum gb_token_key {
    GB_TOKEN_NAME,
    GB_TOKEN_SECRET,
    GB_TOKEN_HASH,
    GB_TOKEN_SCOPE,
    GB_TOKEN_SESSION,
    GB_TOKEN_PREFIX,
    GB_TOKEN_EXPIRES,
    GB_TOKEN_SUBJECT,
    GB_TOKEN_KEYS
};
/* The text of each key, NULL where it is not given; borrowed. */
struct gb_token_entry {
    const char *value[GB_TOKEN_KEYS];
};
/* Returns the key, or -1 with INVALID_ARGUMENT. The text of the key is repeated only if it cannot be a secret. */
int gb_token_key_find(const char *text, size_t len, struct gb_error *err);

/* Called for each object with the line at which it begins. */
typedef int gb_token_entry_fn(void *arg, unsigned line, const struct gb_token_entry *entry, struct gb_error *err);
/* *ret_line: of the failure. */
int gb_tokens_file_json(const char *text, size_t len, gb_token_entry_fn *visit, void *arg, unsigned *ret_line,
                        struct gb_error *err);

#define GB_TOKEN_SECRET_LEAST 16 /* bytes */

/* Whether text may be the secret of a token: long enough, without blanks. INVALID_ARGUMENT. */
int gb_token_secret_check(const char *secret, struct gb_error *err);

#endif
