/* The requests and answers of etcd's JSON gateway. Pure: no connection, no clock.
 *
 * Keys and values are base64. Numbers of 64 bits are texts. Members with the default value are absent. Only
 * transactions read and change keys. Their first range or comparison is that of the fleet's meta record. */
#ifndef GB_FLEET_MESSAGES_H
#define GB_FLEET_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json_writer.h"

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* A transaction under construction: comparisons, then operations of success, then those of failure. Zero-initialised is
 * empty. */
struct gb_txn {
    struct gb_json_writer out;
    char list; /* the open list: 'c', 's' or 'f'; NUL: no list yet */
};

enum gb_txn_target { GB_TXN_CREATED, GB_TXN_MODIFIED };

/* Compares a revision of the key. 0: the key does not exist. */
void gb_txn_compare(struct gb_txn *txn, enum gb_txn_target target, const char *key, int64_t revision);
/* Compares that the key exists. */
void gb_txn_compare_there(struct gb_txn *txn, const char *key);
/* The operations added after this run if a comparison fails; those before it, if all hold. */
void gb_txn_else(struct gb_txn *txn);

struct gb_txn_range {
    const char *key;
    bool after;        /* from the key after that one */
    const char *end;   /* NULL: one key */
    size_t limit;      /* 0: no limit */
    int64_t revision;  /* 0: the newest */
    bool serializable; /* answered by one member alone */
    bool keys_only;
};
void gb_txn_get(struct gb_txn *txn, const struct gb_txn_range *range);
void gb_txn_put(struct gb_txn *txn, const char *key, const char *value, int64_t lease); /* lease 0: no lease */
void gb_txn_delete(struct gb_txn *txn, const char *key);
void gb_txn_delete_below(struct gb_txn *txn, const char *prefix); /* all keys with that prefix, which ends with '/' */
/* Sets *ret to the end of the range of a prefix, which ends with '/'. */
void gb_prefix_end(const char *prefix, char *ret, size_t size);
/* The request, which the caller frees; NULL: no memory. The transaction is empty afterwards. */
char *gb_txn_finish(struct gb_txn *txn);

/* The caller frees the text; NULL: no memory. */
char *gb_lease_grant_text(int64_t id, unsigned ttl_s);
char *gb_lease_text(int64_t id, bool keys); /* of the other lease requests; keys: asks for the attached keys */

/* --- answers ------------------------------------------------------------------------------------------------------ */

struct gb_kv {
    char *key;
    char *value; /* NUL-terminated */
    size_t bytes;
    int64_t create_revision;
    int64_t mod_revision;
};

struct gb_kvs {
    struct gb_kv *items;
    size_t count;
    bool more;
};

struct gb_txn_answer {
    uint64_t cluster_id;
    int64_t revision;
    uint64_t term; /* of the leader; 0: absent */
    bool succeeded;
    struct gb_kvs *results; /* one for each operation that ran; empty for puts and deletes */
    size_t count;
};

struct gb_lease_answer {
    uint64_t cluster_id;
    int64_t ttl_s; /* -1, or 0 in an answer to keepalive: no such lease */
    int64_t granted_s;
    char **keys;
    size_t key_count;
};

/* Each returns 0, or -1 with DIRECTORY_UNAVAILABLE and an empty *ret if the text is no such answer. The caller frees an
 * answer with its done function, which accepts a zeroed one. */
int gb_txn_read(const char *text, size_t n, struct gb_txn_answer *ret, struct gb_error *err);
void gb_txn_answer_done(struct gb_txn_answer *answer);
/* Reads answers to grant, keepalive, timetolive and revoke. */
int gb_lease_read(const char *text, size_t n, struct gb_lease_answer *ret, struct gb_error *err);
void gb_lease_answer_done(struct gb_lease_answer *answer);

/* Returns the number of an error, 0 without one; sets ret_text to its text, cut to size. */
int gb_refusal_read(const char *text, size_t n, char *ret_text, size_t size);

/* The result at that index, or an empty one. */
const struct gb_kvs *gb_txn_result(const struct gb_txn_answer *answer, size_t index);

#endif
