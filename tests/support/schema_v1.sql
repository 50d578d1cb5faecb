-- A store as schema version 1 left it: a launch, a running job and a down, all cut midway. Never edit: it is history.
BEGIN TRANSACTION;
CREATE TABLE attempts (
	cluster_uid VARCHAR NOT NULL,
	job_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	cause VARCHAR NOT NULL,
	why TEXT NOT NULL,
	generation INTEGER,
	at FLOAT NOT NULL,
	PRIMARY KEY (cluster_uid, job_id, attempt)
);
INSERT INTO "attempts" VALUES('49192b41e8856997',1,1,'preempted','the provider took it',1,1.79521032989570546146e+09);
CREATE TABLE clusters (
	uid VARCHAR NOT NULL,
	name VARCHAR NOT NULL,
	created FLOAT NOT NULL,
	gone FLOAT,
	wanted VARCHAR DEFAULT 'up' NOT NULL,
	hosts TEXT DEFAULT '[]' NOT NULL,
	held TEXT DEFAULT '{}' NOT NULL,
	summary TEXT DEFAULT '' NOT NULL,
	last_state VARCHAR DEFAULT '' NOT NULL,
	last_seen FLOAT DEFAULT '0' NOT NULL,
	PRIMARY KEY (uid)
);
INSERT INTO "clusters" VALUES('421397f16f97cc76','starting',1.79521032987784600254e+09,NULL,'up','[]','{}','local:2','',0.0);
INSERT INTO "clusters" VALUES('49192b41e8856997','busy',1.79521032988683772084e+09,NULL,'up','[]','{"0": {"setup": "abc"}}','tpu v5e-8 spot','ready',1.79521032989976215363e+09);
INSERT INTO "clusters" VALUES('0079145054d74652','going',1.79521032990126872064e+09,NULL,'down','[]','{}','local:2','',0.0);
INSERT INTO "clusters" VALUES('f8df325d960bb5d3','past',1.79521032991023278234e+09,1.79521032991208934776e+09,'up','[]','{}','local:1','',0.0);
CREATE TABLE events (
	seq INTEGER NOT NULL,
	at FLOAT NOT NULL,
	cluster VARCHAR NOT NULL,
	actor VARCHAR NOT NULL,
	kind VARCHAR NOT NULL,
	what TEXT NOT NULL,
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,1.79521032987848949431e+09,'starting','someone@laptop:4711','cluster','record opened: local:2');
INSERT INTO "events" VALUES(2,1.79521032988388514516e+09,'starting','someone@laptop:4711','job','job 1 opened (launch), run run-a');
INSERT INTO "events" VALUES(3,1.79521032988632893564e+09,'starting','someone@laptop:4711','intent','starting-1: planned, local on demand');
INSERT INTO "events" VALUES(4,1.79521032988707327838e+09,'busy','someone@laptop:4711','cluster','record opened: tpu v5e-8 spot');
INSERT INTO "events" VALUES(5,1.79521032988914442055e+09,'busy','someone@laptop:4711','job','job 1 opened (launch), run run-b');
INSERT INTO "events" VALUES(6,1.79521032989036774638e+09,'busy','someone@laptop:4711','intent','busy-1: planned, google/us-west4/us-west4-a spot');
INSERT INTO "events" VALUES(7,1.79521032989211773867e+09,'busy','someone@laptop:4711','intent','busy-1: planned -> accepted');
INSERT INTO "events" VALUES(8,1.79521032989312982557e+09,'busy','someone@laptop:4711','job','job 1 is being started');
INSERT INTO "events" VALUES(9,1.79521032989443612105e+09,'busy','someone@laptop:4711','intent','busy-1: accepted -> ending (preempted: the provider took it)');
INSERT INTO "events" VALUES(10,1.79521032989525794985e+09,'busy','someone@laptop:4711','intent','busy-1: ending -> gone');
INSERT INTO "events" VALUES(11,1.79521032989663243293e+09,'busy','someone@laptop:4711','attempt','job 1: attempt 1 ended (preempted: the provider took it)');
INSERT INTO "events" VALUES(12,1.79521032989783263207e+09,'busy','someone@laptop:4711','intent','busy-2: planned, google/us-west4/us-west4-a spot');
INSERT INTO "events" VALUES(13,1.7952103298986680507e+09,'busy','someone@laptop:4711','intent','busy-2: planned -> accepted');
INSERT INTO "events" VALUES(14,1.79521032989933848385e+09,'busy','someone@laptop:4711','job','job 1 is being started');
INSERT INTO "events" VALUES(15,1795210329.90149,'going','someone@laptop:4711','cluster','record opened: local:2');
INSERT INTO "events" VALUES(16,1.79521032990385508536e+09,'going','someone@laptop:4711','intent','going-1: planned, local on demand');
INSERT INTO "events" VALUES(17,1.79521032990488314633e+09,'going','someone@laptop:4711','intent','going-1: planned -> accepted');
INSERT INTO "events" VALUES(18,1.79521032990598964698e+09,'going','someone@laptop:4711','job','job 1 opened (exec), run ');
INSERT INTO "events" VALUES(19,1.79521032990696954726e+09,'going','someone@laptop:4711','job','job 1 is being started');
INSERT INTO "events" VALUES(20,1.79521032990806722641e+09,'going','someone@laptop:4711','job','job 1 ended: the program failed (status 3)');
INSERT INTO "events" VALUES(21,1.79521032990890455245e+09,'going','someone@laptop:4711','wanted','down');
INSERT INTO "events" VALUES(22,1795210329.90983,'going','someone@laptop:4711','intent','going-1: accepted -> ending (asked: down)');
INSERT INTO "events" VALUES(23,1.79521032991043400766e+09,'past','someone@laptop:4711','cluster','record opened: local:1');
INSERT INTO "events" VALUES(24,1.79521032991238236424e+09,'past','someone@laptop:4711','cluster','record closed: nothing is left');
CREATE TABLE intents (
	cluster_uid VARCHAR NOT NULL,
	generation INTEGER NOT NULL,
	name VARCHAR NOT NULL,
	candidate TEXT NOT NULL,
	token VARCHAR NOT NULL,
	request TEXT NOT NULL,
	state VARCHAR NOT NULL,
	cause VARCHAR,
	why TEXT DEFAULT '' NOT NULL,
	since FLOAT NOT NULL,
	touched FLOAT NOT NULL,
	PRIMARY KEY (cluster_uid, generation)
);
INSERT INTO "intents" VALUES('421397f16f97cc76',1,'starting-1','{"accelerator": "cpu", "chips_per_host": 0, "details": [["shape", "2"]], "disk_gib": null, "hosts": 2, "market": ["on-demand"], "price_note": "", "price_per_hour": null, "provider": "local", "region": "", "zone": ""}','421397f16f97cc76-1','2e957d2a4a743921f605066d2d656d009068c09fc190d368fe6eb43129e8bbb3','planned',NULL,'',1.79521032988528323175e+09,1.79521032988528323175e+09);
INSERT INTO "intents" VALUES('49192b41e8856997',1,'busy-1','{"accelerator": "v5e-8", "chips_per_host": 8, "details": [], "disk_gib": null, "hosts": 1, "market": ["spot"], "price_note": "list", "price_per_hour": 9.6, "provider": "google", "region": "us-west4", "zone": "us-west4-a"}','49192b41e8856997-1','7e30f3b7ecae5a581881c9e97913dbab4b52b41ac256d00242e8bb18a99cd307','gone','preempted','the provider took it',1.79521032989485287666e+09,1.79521032989485287666e+09);
INSERT INTO "intents" VALUES('49192b41e8856997',2,'busy-2','{"accelerator": "v5e-8", "chips_per_host": 8, "details": [], "disk_gib": null, "hosts": 1, "market": ["spot"], "price_note": "list", "price_per_hour": 9.6, "provider": "google", "region": "us-west4", "zone": "us-west4-a"}','49192b41e8856997-2','fe32a9bb0b24a58a7b288a508f38de3257119792a71b3043ba4b3e899f61ce07','accepted',NULL,'',1.79521032989826774591e+09,1.79521032989826774591e+09);
INSERT INTO "intents" VALUES('0079145054d74652',1,'going-1','{"accelerator": "cpu", "chips_per_host": 0, "details": [["shape", "2"]], "disk_gib": null, "hosts": 2, "market": ["on-demand"], "price_note": "", "price_per_hour": null, "provider": "local", "region": "", "zone": ""}','0079145054d74652-1','35744a7ca1932eb5b4fe1ec4c88f1e0dbb70fa02bedd63596ce6d042bf2460b1','ending','asked','down',1.79521032990940594678e+09,1.79521032990940594678e+09);
CREATE TABLE jobs (
	cluster_uid VARCHAR NOT NULL,
	id INTEGER NOT NULL,
	kind VARCHAR NOT NULL,
	run_id VARCHAR NOT NULL,
	digest VARCHAR NOT NULL,
	task TEXT NOT NULL,
	bucket TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	started BOOLEAN NOT NULL,
	opened_at INTEGER NOT NULL,
	state VARCHAR NOT NULL,
	status INTEGER,
	code VARCHAR DEFAULT '' NOT NULL,
	what TEXT DEFAULT '' NOT NULL,
	why TEXT DEFAULT '' NOT NULL,
	next_step TEXT DEFAULT '' NOT NULL,
	created FLOAT NOT NULL,
	ended FLOAT,
	ranks TEXT,
	after_end VARCHAR DEFAULT 'keep' NOT NULL,
	PRIMARY KEY (cluster_uid, id)
);
INSERT INTO "jobs" VALUES('421397f16f97cc76',1,'launch','run-a','digest-a','{"run": "true"}','',1,0,0,'pending',NULL,'','','','',1.79521032988307118415e+09,NULL,NULL,'keep');
INSERT INTO "jobs" VALUES('49192b41e8856997',1,'launch','run-b','digest-b','{"run": "python train.py"}','gs://bucket',2,1,0,'running',NULL,'','','','',1.79521032988894534108e+09,NULL,NULL,'down');
INSERT INTO "jobs" VALUES('0079145054d74652',1,'exec','','digest-c','','',1,1,1,'ended',3,'program-failed','the program failed','it''s so','orch logs going',1.79521032990566086762e+09,1.79521032990740966794e+09,'[0]','keep');
CREATE TABLE leases (
	name VARCHAR NOT NULL,
	fence INTEGER NOT NULL,
	owner VARCHAR NOT NULL,
	machine VARCHAR NOT NULL,
	pid INTEGER NOT NULL,
	process_start VARCHAR NOT NULL,
	doing TEXT NOT NULL,
	expires FLOAT NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO "leases" VALUES('cluster:starting',1,'209a90d8225348bd908fbe5354ff0e86','laptop',4711,'1201620','launch',1.79521035988052082062e+09);
INSERT INTO "leases" VALUES('cluster:busy',1,'e80182af748142e1a1287b617b7b7997','laptop',4711,'1201620','launch',1.79521035988785839085e+09);
INSERT INTO "leases" VALUES('cluster:going',1,'dd498046671943a6a9cf2f69e64c2d4a','laptop',4711,'1201620','down',1.79521035990227484707e+09);
INSERT INTO "leases" VALUES('cluster:past',1,'','laptop',4711,'1201620','down',0.0);
CREATE TABLE meta (
	"key" VARCHAR NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('installation','d651a4dc48c3');
INSERT INTO "meta" VALUES('schema','1');
CREATE UNIQUE INDEX one_living_cluster_of_a_name ON clusters (name) WHERE gone IS NULL;
CREATE INDEX events_by_cluster ON events (cluster, seq);
COMMIT;
