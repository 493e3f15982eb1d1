BEGIN TRANSACTION;
CREATE TABLE approval (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        run TEXT,
        request TEXT NOT NULL,
        answer TEXT
    ) STRICT;
INSERT INTO "approval" VALUES(1,'q','r','{"arguments":{},"asked_at":0.0,"bound_to":"b","call_id":"c","evidence":null,"expires_at":null,"files":{},"id":"q","preview":"","run":"r","schema_hash":"s","scopes":[],"tool":"look","type":"approval_request","why":"a rule"}','{"always":null,"arguments":null,"bound_to":"","by":"me","decision":"approved","id":"q","reason":"","type":"approval_answer"}');
INSERT INTO "approval" VALUES(2,'p','r','{"arguments":{},"asked_at":0.0,"bound_to":"b","call_id":"c","evidence":null,"expires_at":null,"files":{},"id":"p","preview":"","run":"r","schema_hash":"s","scopes":[],"tool":"look","type":"approval_request","why":"a rule"}',NULL);
CREATE TABLE artifact (
        digest TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        kind TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO "artifact" VALUES('32c693511a58da971394480aa4def02678c25a0fd7f601ac62051fc822f6442e',70047,'body');
CREATE TABLE call (
        number INTEGER PRIMARY KEY,
        run TEXT NOT NULL,
        call_id TEXT NOT NULL,
        node INTEGER REFERENCES node (seq),
        key TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
INSERT INTO "call" VALUES(1,'r','1',3,'95d797f6c4054bac','done','{"arguments":{"$as_is":{"$as_is":{"$node":[3,0]},"$node":[1,2],"text":{"$node":[3,0]}}},"attempt":1,"started_at_s":0.30000000000000004,"text":{"$node":[4,0]},"tool":"look","turn":1}');
CREATE TABLE chunk (
        seq INTEGER PRIMARY KEY,
        run INTEGER REFERENCES run (number),
        turn INTEGER,
        at_ms INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
INSERT INTO "chunk" VALUES(1,1,1,1795554263123,'[[0.1,"\udc00"]]');
CREATE TABLE event (
        seq INTEGER PRIMARY KEY,
        run INTEGER REFERENCES run (number),
        at_ms INTEGER NOT NULL,
        type TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
INSERT INTO "event" VALUES(1,1,1795554263123,'nudged','{"at_s":1.5,"text":{"$node":[3,0]},"turn":1}');
INSERT INTO "event" VALUES(2,1,1795554263123,'tool_started','{"at_s":1.75,"call":{"arguments":{"text":{"$node":[3,0]}},"id":"1","name":"look"},"turn":1}');
INSERT INTO "event" VALUES(3,1,1795554263131,'tool_finished','{"after_s":0.25,"at_s":2.0,"result":{"id":"1","name":"look","text":{"$node":[4,0]}},"turn":1}');
INSERT INTO "event" VALUES(4,1,1795554263131,'turn_ended','{"at_s":2.5,"turn":{"number":1,"text":{"$node":[3,0]},"tool_calls":[{"arguments":{"text":{"$node":[3,0]}},"id":"1","name":"look"}]}}');
CREATE TABLE head (
        name TEXT PRIMARY KEY,
        node INTEGER REFERENCES node (seq)
    ) STRICT, WITHOUT ROWID;
INSERT INTO "head" VALUES('active',9);
INSERT INTO "head" VALUES('früher',1);
CREATE TABLE meta (
        key TEXT PRIMARY KEY,
        value ANY
    ) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('created_ms',1795554263111);
INSERT INTO "meta" VALUES('epoch',1);
INSERT INTO "meta" VALUES('id','01a20f5fc0475a3d4d0d3e0a96c0c172');
INSERT INTO "meta" VALUES('in_use',0);
INSERT INTO "meta" VALUES('seal','{"schema": "cc9ee777796fe891bd21a494db1bd778", "meta": "6b05f9b9e26a20e6ca109fa9c832b538", "run": "b1734049babc849fc843811828b4d290", "artifact": "bb5f12cc6d5c37f523168036a1886fd7", "node": "316322aa3dbda0a27093bc67a7a37041", "head": "5bf572deaf90f587bd9152854179dd84", "call": "581dc6b838ee3d3cae4260d54c7c1862", "approval": "7f00cade44d2c8aaca81a55f7d40bbdd", "event": "c4c1fd82dc0c2c8e9a698b8db0d515db", "chunk": "2b0cb8b95eb6741be4cfc6f10770d230"}');
CREATE TABLE node (
        seq INTEGER PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        parent INTEGER REFERENCES node (seq),
        kind INTEGER NOT NULL,
        run INTEGER REFERENCES run (number),
        turn INTEGER,
        at_ms INTEGER NOT NULL,
        tokens INTEGER,
        digest BLOB NOT NULL,
        body TEXT,
        artifact TEXT REFERENCES artifact (digest),
        CHECK ((body IS NULL) <> (artifact IS NULL))
    ) STRICT;
INSERT INTO "node" VALUES(1,X'01A20F5FC04D33FEB4273C3ED12C4685',NULL,1,1,1,1795554263117,5,X'C203FABDF2F728A0802F31049927924C','{"content":[{"text":"a\u0000\ud800 \u6f22"}],"type":"user_message"}',NULL);
INSERT INTO "node" VALUES(2,X'01A20F5FC04D2BE4C2ED6DC1A64C564C',1,1,NULL,NULL,1795554263117,NULL,X'8F82A9857B500F50FD5ABBF1C4D29E6B','{"content":[{"text":"b"}],"type":"user_message"}',NULL);
INSERT INTO "node" VALUES(3,X'01A20F5FC0539B55A351E1A1036C1011',2,1,1,1,1795554263123,NULL,X'B256CEDB532429BBD18DDCCC9D89F6CB','{"content":[{"text":"a text that stands in several places, and is stored once. a text that stands in several places, and is stored once. a text that stands in several places, and is stored once. "},{"arguments":{"at":"1"},"id":"1","name":"look"}],"type":"assistant_message"}',NULL);
INSERT INTO "node" VALUES(4,X'01A20F5FC05BF458CA96E5E3F377A9EE',3,1,1,1,1795554263131,NULL,X'8207460049BFF4234F83B52AB89A3483','{"id":"1","name":"look","text":"a text that stands in several places, and is stored once. a text that stands in several places, and is stored once. a text that stands in several places, and is stored once.  seen","type":"tool_result"}',NULL);
INSERT INTO "node" VALUES(5,X'01A20F5FC05E37ECFA1BC2EC37F75681',4,3,NULL,NULL,1795554263134,NULL,X'5167D2819DD6445A26E834F941D3C3FF','{"replacement":{"content":[{"text":"short"}],"type":"user_message"},"target":"01a20f5fc04d33feb4273c3ed12c4685"}',NULL);
INSERT INTO "node" VALUES(6,X'01A20F5FC05E291A5F652C2DF7240672',5,4,NULL,NULL,1795554263134,NULL,X'D1FCBE6BB198C67D2512D5E7E1C377A8','{"data":null,"name":"m"}',NULL);
INSERT INTO "node" VALUES(7,X'01A20F5FC05E3DFE6D41408EE9876BC2',6,5,NULL,NULL,1795554263134,NULL,X'C115BF6B17EC7925DFB7E4BE865FBA89','{"text":"why"}',NULL);
INSERT INTO "node" VALUES(8,X'01A20F5FC0BA12477A053F4B82CC8B9B',7,2,NULL,NULL,1795554263226,10,X'FB6E604E8879B204ED5CABF5CE032ED9','{"base":"01a20f5fc05e3dfe6d41408ee9876bc2","first_kept_node_id":"01a20f5fc04d33feb4273c3ed12c4685","shown":[{"content":[{"text":"a summary"}],"synthetic":true,"type":"user_message"}],"summary":"a summary","tokens_after":10,"tokens_before":100,"type":"compacted"}',NULL);
INSERT INTO "node" VALUES(9,X'01A20F5FC0BA1189C48A1782BCB2CB76',8,1,NULL,NULL,1795554263226,NULL,X'1383EA163BD1BE0AF43B1B7C2CA7A064',NULL,'32c693511a58da971394480aa4def02678c25a0fd7f601ac62051fc822f6442e');
CREATE TABLE run (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        parent_run TEXT,
        agent TEXT NOT NULL,
        purpose TEXT NOT NULL,
        state TEXT NOT NULL,
        started_ms INTEGER NOT NULL,
        ended_ms INTEGER,
        body TEXT NOT NULL
    ) STRICT;
INSERT INTO "run" VALUES(1,'r',NULL,'a','main','running',0,NULL,'{"agent":"a","data":{"x":[1]},"ended_at_s":null,"id":"r","parent_run":null,"purpose":"main","started_at_s":0.0,"state":"running","type":"run_record"}');
INSERT INTO "run" VALUES(2,'s',NULL,'','main','running',0,NULL,'{"agent":"","data":{},"ended_at_s":null,"id":"s","parent_run":null,"purpose":"main","started_at_s":0.0,"state":"running","type":"run_record"}');
CREATE INDEX node_parent ON node (parent);
CREATE INDEX node_run ON node (run, turn) WHERE run IS NOT NULL;
CREATE TRIGGER node_is_kept_from_update BEFORE UPDATE ON node
        BEGIN SELECT RAISE(ABORT, 'a node is never changed or removed'); END;
CREATE TRIGGER node_is_kept_from_delete BEFORE DELETE ON node
        BEGIN SELECT RAISE(ABORT, 'a node is never changed or removed'); END;
CREATE TRIGGER event_is_kept_from_update BEFORE UPDATE ON event
        BEGIN SELECT RAISE(ABORT, 'a event is never changed or removed'); END;
CREATE TRIGGER event_is_kept_from_delete BEFORE DELETE ON event
        BEGIN SELECT RAISE(ABORT, 'a event is never changed or removed'); END;
CREATE TRIGGER chunk_is_kept_from_update BEFORE UPDATE ON chunk
        BEGIN SELECT RAISE(ABORT, 'a chunk is never changed or removed'); END;
CREATE TRIGGER chunk_is_kept_from_delete BEFORE DELETE ON chunk
        BEGIN SELECT RAISE(ABORT, 'a chunk is never changed or removed'); END;
CREATE TRIGGER node_is_kept_from_replace BEFORE INSERT ON node
    WHEN EXISTS (SELECT 1 FROM node WHERE seq = NEW.seq OR id = NEW.id)
    BEGIN SELECT RAISE(ABORT, 'a node is never changed or removed'); END;
CREATE TRIGGER event_is_kept_from_replace BEFORE INSERT ON event
    WHEN EXISTS (SELECT 1 FROM event WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'a event is never changed or removed'); END;
CREATE TRIGGER chunk_is_kept_from_replace BEFORE INSERT ON chunk
    WHEN EXISTS (SELECT 1 FROM chunk WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'a chunk is never changed or removed'); END;
CREATE INDEX call_open ON call (run) WHERE state IN ('intended', 'awaiting_approval', 'running', 'awaiting_result');
CREATE INDEX call_run ON call (run);
CREATE INDEX event_run ON event (run) WHERE run IS NOT NULL;
COMMIT;
