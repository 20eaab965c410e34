-- A ledger that version 1 wrote, as `.dump` of SQLite shows it.
PRAGMA application_id=1349667650;
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE blocks (
    name TEXT PRIMARY KEY,
    stream TEXT NOT NULL REFERENCES streams (name),
    created INTEGER NOT NULL,
    start_time INTEGER, end_time INTEGER,
    first_user INTEGER, last_user INTEGER,
    data_source TEXT,
    retired INTEGER NOT NULL,
    arrivals INTEGER NOT NULL,         -- claims that have stood in line for it
    opened INTEGER NOT NULL,           -- shares unlocked
    allocated TEXT NOT NULL,
    consumed TEXT NOT NULL
) STRICT;
INSERT INTO "blocks" VALUES('u0','users',1700000000000000,NULL,NULL,0,99,NULL,0,3,1,'{"delta":"0","epsilon":"0.1"}','{"delta":"0","epsilon":"0.2"}');
CREATE TABLE claims (
    name TEXT PRIMARY KEY,
    stream TEXT NOT NULL REFERENCES streams (name),
    owner TEXT,
    created INTEGER NOT NULL,
    waiting INTEGER NOT NULL           -- whether a request has no response yet
) STRICT;
INSERT INTO "claims" VALUES('spent','users',NULL,1700000000000000,0);
INSERT INTO "claims" VALUES('holds','users',NULL,1700000000000000,0);
INSERT INTO "claims" VALUES('waits','users',NULL,1700000000000000,1);
CREATE TABLE ledger (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    latest INTEGER NOT NULL            -- the latest time the ledger has seen, microseconds
) STRICT;
INSERT INTO "ledger" VALUES(1,1700000000000000);
CREATE TABLE requests (
    claim TEXT NOT NULL REFERENCES claims (name),
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,                -- the client's words
    received TEXT NOT NULL,            -- what the ledger made of them
    PRIMARY KEY (claim, position),
    UNIQUE (claim, id)
) STRICT;
INSERT INTO "requests" VALUES('spent',0,'allocate','allocate','{"plan":{"steps":[{"epsilon":"0.2","mechanism":"pure","name":"all"}]},"select":{"names":["u0"]},"stream":"users","timeout":"0s"}','{"arrival":0,"blocks":["u0"],"deadline":1700000000000000,"steps":[["all",{"delta":"0","epsilon":"0.2"}]],"submitted":1700000000000000}');
INSERT INTO "requests" VALUES('spent',1,'consume','consume','{}','{"submitted":1700000000000000}');
INSERT INTO "requests" VALUES('holds',0,'allocate','allocate','{"plan":{"steps":[{"epsilon":"0.1","mechanism":"pure","name":"all"}]},"select":{"names":["u0"]},"stream":"users","timeout":"0s"}','{"arrival":1,"blocks":["u0"],"deadline":1700000000000000,"steps":[["all",{"delta":"0","epsilon":"0.1"}]],"submitted":1700000000000000}');
INSERT INTO "requests" VALUES('waits',0,'allocate','allocate','{"plan":{"steps":[{"epsilon":"0.65","mechanism":"pure","name":"all"}]},"select":{"names":["u0"]},"stream":"users","timeout":null}','{"arrival":2,"blocks":["u0"],"deadline":null,"steps":[["all",{"delta":"0","epsilon":"0.65"}]],"submitted":1700000000000000}');
CREATE TABLE responses (
    claim TEXT NOT NULL,
    request TEXT NOT NULL,
    done INTEGER NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    at INTEGER NOT NULL,
    amounts TEXT NOT NULL,
    PRIMARY KEY (claim, request),
    FOREIGN KEY (claim, request) REFERENCES requests (claim, id)
) STRICT;
INSERT INTO "responses" VALUES('spent','allocate',1,'Allocated','epsilon 0.2 on 1 block',1700000000000000,'[{"blocks":["u0"],"budget":{"delta":"0","epsilon":"0.2"}}]');
INSERT INTO "responses" VALUES('spent','consume',1,'Consumed','all of it',1700000000000000,'[{"blocks":["u0"],"budget":{"delta":"0","epsilon":"0.2"}}]');
INSERT INTO "responses" VALUES('holds','allocate',1,'Allocated','epsilon 0.1 on 1 block',1700000000000000,'[{"blocks":["u0"],"budget":{"delta":"0","epsilon":"0.1"}}]');
CREATE TABLE streams (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL,                -- the declaration
    capacity TEXT NOT NULL,            -- what each block gets, fixed when the stream was declared
    arrivals INTEGER NOT NULL,         -- allocate requests so far
    due INTEGER                        -- when a pass could next decide something by itself
) STRICT;
INSERT INTO "streams" VALUES('users','{"accounting":"basic","counter":{"days":32768,"epsilon":"0.1"},"delta":"1e-7","epsilon":"1","name":"users","policy":"dpf","semantic":"user","unlocking":{"pipelines":1}}','{"delta":"0.0000001","epsilon":"0.9"}',3,NULL);
CREATE INDEX blocks_of_stream ON blocks (stream);
CREATE INDEX claims_of_stream ON claims (stream, waiting);
CREATE TRIGGER requests_UPDATE BEFORE UPDATE ON requests
BEGIN SELECT RAISE(ABORT, 'requests are only ever added'); END;
CREATE TRIGGER requests_DELETE BEFORE DELETE ON requests
BEGIN SELECT RAISE(ABORT, 'requests are only ever added'); END;
CREATE TRIGGER responses_UPDATE BEFORE UPDATE ON responses
BEGIN SELECT RAISE(ABORT, 'responses are only ever added'); END;
CREATE TRIGGER responses_DELETE BEFORE DELETE ON responses
BEGIN SELECT RAISE(ABORT, 'responses are only ever added'); END;
COMMIT;
