/* Where backups are: a folder, a server of HTTP, or a bucket of S3. */
#ifndef GB_CLI_BACKUP_PLACE_H
#define GB_CLI_BACKUP_PLACE_H

#include "cli/cli.h"

enum gb_place_kind { GB_PLACE_FOLDER, GB_PLACE_HTTP, GB_PLACE_S3 };

/* What DEST or SOURCE says, with what the environment adds. Read only, by all threads. Secrets are in `user` and
 * `token` alone. */
struct gb_place {
    enum gb_place_kind kind;
    char *name;         /* how messages call it */
    char *base;         /* the folder, or the URL that "/" and the name of an object follow */
    char *bucket;       /* S3: the URL of the bucket; NULL otherwise */
    char *prefix;       /* S3: of the keys, with a "/" at its end unless it is empty, not escaped */
    char *sigv4;        /* S3: provider, region and service, for libcurl */
    char *user;         /* S3: "ID:SECRET" */
    char *token;        /* S3: the header with the session's token; NULL: none */
    const char *cacert; /* of https; NULL: the system's authorities */
};

/* Reads DEST or SOURCE: a path, file://, http[s]:// or s3://. 0, or -1 with err (BAD_ARGUMENT). ret needs
 * gb_place_done() either way. */
int gb_place_read(const struct gb_cli *cli, const char *text, struct gb_place *ret, struct gpubuf_error *err);
void gb_place_done(struct gb_place *place);

/* The path or URL of an object, malloc'd; NULL without memory. */
char *gb_place_at(const struct gb_place *place, const char *object);

#endif
