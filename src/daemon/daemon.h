/* The daemon as a value, opened bottom up and closed top down. wire.c makes it of the options; main.c has it serve.
 * The nouns of this folder that need more than a part of it take it whole; only the main thread calls them, unless a
 * function says otherwise. */
#ifndef GB_DAEMON_DAEMON_H
#define GB_DAEMON_DAEMON_H

#include <stdbool.h>

#include "api/api.h"
#include "backend/backend.h"
#include "base/log.h"
#include "base/process.h"
#include "core/core.h"
#include "daemon/cage/seccomp.h"
#include "daemon/listen.h"
#include "daemon/options.h"
#include "daemon/tokens_file.h"
#include "http/http.h"
#include "store/store.h"

/* Exit statuses, by the names of sysexits.h. */
enum gb_exit {
    GB_EXIT_OK = 0,
    GB_EXIT_FINDINGS = 1,  /* of fsck and recover: not all files are sound */
    GB_EXIT_USAGE = 64,    /* an option is unknown or ill-formed */
    GB_EXIT_SOFTWARE = 70, /* something that the options name cannot be had */
    GB_EXIT_DEVICE = 75,   /* the device is lost: start again */
    GB_EXIT_CONFIG = 78    /* the options are well-formed but must not or cannot work */
};

struct gb_daemon_fleet;
struct gb_daemon_pulls;
struct gb_request_log;

/* What is in force of the cage. */
struct gb_daemon_cage {
    int landlock; /* the version; 0: none */
    enum gb_seccomp seccomp;
    bool privileges; /* given up */
};

/* Zero-initialised with options filled is ready for gb_daemon_start. */
struct gb_daemon {
    struct gb_options options;
    struct gb_log log;
    char *state_dir;
    char *database;
    char *listen_file;
    struct gb_own_file listen_own; /* what this process wrote there */
    char *data_dir;                /* of the bytes of durable buffers; NULL: no such folder */
    int lock_fd;                   /* of the database, until the store has it; 0: none */
    struct gb_daemon_cage cage;
    char backend_note[GB_BACKEND_NOTE_SIZE];
    struct gb_backend *backend;
    struct gb_store *store;
    struct gb_disk *disk; /* NULL: as data_dir */
    struct gb_token_store *tokens;
    struct gb_tokens_file tokens_file;
    int64_t token_end_us;  /* when the next token expires for all threads; 0: none does */
    int64_t token_look_us; /* the wall clock when that was last checked */
    struct gb_closer *closer;
    struct gb_keeper *keeper; /* NULL: no memory outlives the process */
    struct gb_core *core;
    struct gb_api *api;
    struct gb_request_log *requests;
    struct gb_map_peers map_peers;
    struct gb_default_pools default_pools;
    struct gb_http_bounds bounds;
    struct gb_http_server *server;
    struct gb_daemon_fleet *fleet; /* NULL: it is in none */
    struct gb_daemon_pulls *pulls; /* NULL: nothing is copied from other daemons */
    struct gb_listeners listeners;
    struct gb_tls_context *tls;    /* NULL: no listener is for TLS */
    char tls_seen[17];             /* stands for the files that it was read from */
    uint64_t store_failures;       /* changes that the database refused, as last logged */
    uint64_t audit_failures;       /* records that the audit's file has not taken, as last logged */
    uint64_t audit_log_ns;         /* when that was; 0: not yet */
    uint64_t disk_damaged;         /* blocks with other bytes than their checksums say, as last logged */
    enum gb_disk_state disk_state; /* as last logged */
    bool tokens_due;               /* they have changed, and were not loaded since */
    bool tokens_failed;            /* to load, as last logged */
    bool store_refuses;            /* as last logged */
    bool listen_unwritten;         /* the file listen, as last logged */
    bool unreachable;              /* clients cannot reach a UNIX socket, as last logged */
    bool exposed;                  /* other machines may reach it: never without a token */
    bool proxied;                  /* --trusted-proxy or --proxy-protocol: its clients need not be of this machine */
    bool had_tokens;               /* one was in force since the start */
    bool kernel_tls;               /* the kernel could encrypt records; the daemon does not have it do so */
    bool device_lost;              /* said so in the log */
    int signal_fd;
};

/* Opens everything from the store up to the sockets. Returns GB_EXIT_OK, or another status with *err; what was opened
 * then still needs gb_daemon_done. The signals that the daemon waits for are blocked already. */
enum gb_exit gb_daemon_start(struct gb_daemon *daemon, struct gb_error *err);

/* Closes what is open, top down. Also after a failed start. */
void gb_daemon_done(struct gb_daemon *daemon);

/* Makes UNIX sockets whose file is gone, and the file listen, again, and logs that; as long as it cannot, the daemon is
 * not ready. What systemd made is its own to make again. */
void gb_daemon_check_sockets(struct gb_daemon *daemon);

#endif
