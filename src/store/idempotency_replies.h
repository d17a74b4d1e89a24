/* What the files about answers share. Internal to the store. */
#ifndef GB_STORE_IDEMPOTENCY_REPLIES_H
#define GB_STORE_IDEMPOTENCY_REPLIES_H

#define GB_ANSWER_PUT_SQL                                                                                              \
    "INSERT INTO answers(key, fingerprint, expires_at_us, status, headers, body) VALUES(?1, ?2, ?3, ?4, ?5, ?6)"       \
    " ON CONFLICT(key) DO UPDATE SET fingerprint = ?2, expires_at_us = ?3, status = ?4, headers = ?5, body = ?6"

#endif
