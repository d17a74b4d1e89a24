/* The records of the directory as JSON. Pure. Another node may have written any text: a malformed record is an error.
 * Unknown members are kept when a record is written again. */
#ifndef GB_FLEET_RECORDS_H
#define GB_FLEET_RECORDS_H

#include "fleet/fleet.h"

#define GB_FLEET_NODE_RECORD_MAX 4096
#define GB_FLEET_SESSION_RECORD_MAX 4096

/* What alive/N says. */
struct gb_fleet_alive {
    uint64_t uuid;
    uint64_t incarnation;
    bool draining;
    uint64_t free_bytes[GB_FLEET_DEVICES_MAX];
    uint64_t committed_bytes[GB_FLEET_DEVICES_MAX];
    size_t count;
};

/* Functions that read return 0, or -1 with DIRECTORY_UNAVAILABLE and *ret zeroed except its name. The caller sets
 * names, which come from keys. Functions that write return a text that the caller frees, or NULL with INVALID_ARGUMENT
 * (too long) or SATURATED. old: the record that is replaced, or NULL. */
int gb_fleet_node_read(const char *text, size_t n, struct gb_fleet_node *ret, struct gb_error *err);
char *gb_fleet_node_write(const struct gb_fleet_node *node, const char *old, struct gb_error *err);
int gb_fleet_alive_read(const char *text, size_t n, struct gb_fleet_alive *ret, struct gb_error *err);
char *gb_fleet_alive_write(const struct gb_fleet_alive *alive, const char *old, struct gb_error *err);
int gb_fleet_session_read(const char *text, size_t n, struct gb_fleet_session *ret, struct gb_error *err);
/* Writes a tombstone if session->deleted. */
char *gb_fleet_session_write(const struct gb_fleet_session *session, struct gb_error *err);

/* quota/T: reads the limit. */
int gb_fleet_tenant_read(const char *text, size_t n, struct gb_fleet_tenant *ret, struct gb_error *err);
char *gb_fleet_tenant_write(uint64_t limit_bytes);

/* ctl/N/ID: an order to N. session "": the order concerns no session. NULL: no memory. */
char *gb_fleet_order_write(const char *what, const struct gb_name *session);
bool gb_fleet_order_read(const char *text, size_t n, char *ret_what, size_t size, struct gb_name *ret_session);

/* Adds the fields of alive/N to the node. */
void gb_fleet_node_set_alive(struct gb_fleet_node *node, const struct gb_fleet_alive *alive);

/* Reads the member "uuid" of meta. Returns 0, or -1 with DIRECTORY_UNAVAILABLE. */
int gb_fleet_meta_read(const char *text, size_t n, char ret_uuid[40], struct gb_error *err);
/* keys/KID. made_s: seconds since the epoch, by the directory's clock. */
int gb_fleet_key_read(const char *text, size_t n, unsigned char ret_key[32], int64_t *ret_made_s);
char *gb_fleet_key_write(const unsigned char key[32], int64_t made_s);

/* Whether the text can be a node's URL: http or https, a host, without user, query and fragment, and without bytes that
 * would end a header. */
bool gb_fleet_url_is_valid(const char *url);
/* Whether it is a JSON object of texts that fits into GB_FLEET_LABELS_SIZE. */
bool gb_fleet_labels_are_valid(const char *labels);
/* Whether labels have all members of select, which is an object too or "". */
bool gb_fleet_labels_match(const char *labels, const char *select);

#endif
