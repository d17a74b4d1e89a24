/* `gpubufd tls`: the files of a private authority. */
#ifndef GB_DAEMON_TLS_CMD_H
#define GB_DAEMON_TLS_CMD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "tls/names.h"
#include "tls/pair.h"

/* What the command line says. */
struct gb_tls_command {
    const char *words[2]; /* "client" and NAME, "show" and FILE */
    size_t count;
    char *dir; /* malloc'd */
    uint32_t days;
    struct gb_tls_names names;
    const char *client; /* of init; NULL: none */
    bool only;          /* of a renewal: the former names go */
    bool renew;
    const char *state_dir; /* "": the default */
};

/* Paths below a folder, each malloc'd. */
struct gb_tls_paths {
    char *authority_folder; /* of the key, for its owner alone */
    char *authority_key;
    char *authority;
    char *server_key;
    char *server;
    char *servers; /* folders */
    char *clients;
};

int gb_tls_paths_init(struct gb_tls_paths *paths, const char *dir, struct gb_error *err);
void gb_tls_paths_done(struct gb_tls_paths *paths);

/* Each makes files and says which; none is overwritten. */
int gb_tls_init(const struct gb_tls_command *command, struct gb_error *err);
int gb_tls_server(const struct gb_tls_command *command, struct gb_error *err);
int gb_tls_client(const struct gb_tls_command *command, struct gb_error *err);
/* Makes the server's certificate again, with the key that it has. */
int gb_tls_renew(const struct gb_tls_command *command, struct gb_error *err);

/* --- what they share ---------------------------------------------------------------------------------------------- */

/* A certificate with its key, and where it goes. */
struct gb_tls_target {
    const char *word; /* "server", "client" */
    const char *certificate;
    const char *key;
    const char *who; /* said where the certificate has no names */
};

/* Seconds since 1970. */
int64_t gb_tls_now(void);
/* Makes it, and its parents, unless it is there. */
int gb_tls_make_folder(const char *path, unsigned mode, struct gb_error *err);
/* INVALID_ARGUMENT where a file is there. */
int gb_tls_refuse_present(const char *path, const char *instead, struct gb_error *err);
int gb_tls_check_name(const char *what, const char *name, struct gb_error *err);
/* Makes, saves and says one. */
int gb_tls_make(const struct gb_tls_target *target, const struct gb_tls_plan *plan, const struct gb_tls_pair *authority,
                FILE *out, struct gb_error *err);
int gb_tls_make_client(const struct gb_tls_paths *paths, const struct gb_tls_pair *authority, const char *name,
                       uint32_t days, FILE *out, struct gb_error *err);

#endif
