-- An identity may have several actors: its own, and one for each issuer who gives it keys. Whoever issues a key knows its
-- secret, so what is done with it must not be told as the person's own doing.

ALTER TABLE ledger.subjects
    ADD COLUMN issuer text CHECK (issuer ~ '^[0-9a-f]{{32}}$'),
    DROP CONSTRAINT subjects_log_id_identity_key,
    ADD CONSTRAINT subjects_of_an_issuer UNIQUE NULLS NOT DISTINCT (log_id, identity, issuer);
COMMENT ON COLUMN ledger.subjects.issuer IS
    'The actor who issues the keys of this actor; null: the identity''s own, whose keys the operator or itself issues.';

-- Whoever erases a person must reach all their actors, and need not learn who that is.
CREATE FUNCTION ledger.actors_beside(of_log integer, of_actor text) RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = ''
    BEGIN ATOMIC
        SELECT other.actor FROM ledger.subjects AS one
        JOIN ledger.subjects AS other ON other.log_id = one.log_id AND other.identity = one.identity
        WHERE one.log_id = of_log AND one.actor = of_actor AND other.actor <> one.actor
        ORDER BY other.actor;
    END;
COMMENT ON FUNCTION ledger.actors_beside(integer, text) IS 'The other actors of the identity behind an actor.';
REVOKE EXECUTE ON FUNCTION ledger.actors_beside(integer, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger.actors_beside(integer, text) TO {eraser};
