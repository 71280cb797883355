/*
 * Single flight: work that several threads may request at once is done once per key. The first
 * thread to join a key's flight leads it and does the work; the others wait until the leader has
 * completed it and share its outcome.
 */
#pragma once

#include <pthread.h>

#include "smelt/status.h"

enum { SMELT__FLIGHT_KEY = 320 };

struct smelt__flight {
    char key[SMELT__FLIGHT_KEY];
    void *result; /* set by the leader's smelt__flight_complete; NULL after a failure */
    smelt_status status;
    char *message; /* of a failure, for the waiting threads; NULL: out of memory */
    int done;
    int listed; /* can be found by later threads */
    int users;  /* threads between join and leave */
    struct smelt__flight *next;
};

struct smelt__flights {
    pthread_mutex_t mutex;
    pthread_cond_t completion;
    struct smelt__flight *first;
    int keep; /* successful flights stay listed */
    void (*free_result)(void *result);
};

void smelt__flights_init(struct smelt__flights *flights, int keep, void (*free_result)(void *));
/* Frees the kept flights and their results. No thread may be between join and leave. */
void smelt__flights_finish(struct smelt__flights *flights);

/* *flight: the key's flight; NULL: out of memory. 1: the caller leads and must complete
 * it; 0: it is complete. In either case the caller must leave it. If a flight failed, its waiters'
 * error message is set. */
int smelt__flight_join(struct smelt__flights *flights, const char *key,
                       struct smelt__flight **flight);
void smelt__flight_complete(struct smelt__flights *flights, struct smelt__flight *flight,
                            smelt_status status, void *result);
void smelt__flight_leave(struct smelt__flights *flights, struct smelt__flight *flight);
