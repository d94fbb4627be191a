"""Words and phrases in English, Spanish, German and French."""
# ruff: noqa: SIM905 (word lists read best as text)

from __future__ import annotations

from dataclasses import dataclass

LANGUAGES = {"en": "English", "es": "Spanish", "de": "German", "fr": "French"}


@dataclass(frozen=True)
class Noun:
    """Singular and plural per language; the gender is m or f in Spanish and French, and m, f
    or n in German."""

    en: tuple[str, str]
    es: tuple[str, str, str]
    de: tuple[str, str, str]
    fr: tuple[str, str, str]


def _noun(line: str) -> Noun:
    en, es, de, fr = (tuple(part.split("/")) for part in line.split(" "))
    return Noun(en, es, de, fr)  # type: ignore[arg-type]


THINGS = [
    _noun(line)
    for line in """apple/apples manzana/manzanas/f Apfel/Äpfel/m pomme/pommes/f
book/books libro/libros/m Buch/Bücher/n livre/livres/m
table/tables mesa/mesas/f Tisch/Tische/m table/tables/f
chair/chairs silla/sillas/f Stuhl/Stühle/m chaise/chaises/f
house/houses casa/casas/f Haus/Häuser/n maison/maisons/f
car/cars coche/coches/m Auto/Autos/n voiture/voitures/f
dog/dogs perro/perros/m Hund/Hunde/m chien/chiens/m
cat/cats gato/gatos/m Katze/Katzen/f chat/chats/m
bicycle/bicycles bicicleta/bicicletas/f Fahrrad/Fahrräder/n vélo/vélos/m
letter/letters carta/cartas/f Brief/Briefe/m lettre/lettres/f
key/keys llave/llaves/f Schlüssel/Schlüssel/m clé/clés/f
window/windows ventana/ventanas/f Fenster/Fenster/n fenêtre/fenêtres/f
door/doors puerta/puertas/f Tür/Türen/f porte/portes/f
lamp/lamps lámpara/lámparas/f Lampe/Lampen/f lampe/lampes/f
bottle/bottles botella/botellas/f Flasche/Flaschen/f bouteille/bouteilles/f
pencil/pencils lápiz/lápices/m Bleistift/Bleistifte/m crayon/crayons/m
flower/flowers flor/flores/f Blume/Blumen/f fleur/fleurs/f
shirt/shirts camisa/camisas/f Hemd/Hemden/n chemise/chemises/f
ticket/tickets billete/billetes/m Fahrkarte/Fahrkarten/f billet/billets/m
cake/cakes pastel/pasteles/m Kuchen/Kuchen/m gâteau/gâteaux/m
ball/balls pelota/pelotas/f Ball/Bälle/m balle/balles/f
hat/hats sombrero/sombreros/m Hut/Hüte/m chapeau/chapeaux/m
cup/cups taza/tazas/f Tasse/Tassen/f tasse/tasses/f
newspaper/newspapers periódico/periódicos/m Zeitung/Zeitungen/f journal/journaux/m
suitcase/suitcases maleta/maletas/f Koffer/Koffer/m valise/valises/f
picture/pictures cuadro/cuadros/m Bild/Bilder/n tableau/tableaux/m
clock/clocks reloj/relojes/m Uhr/Uhren/f horloge/horloges/f
boat/boats barco/barcos/m Boot/Boote/n bateau/bateaux/m
tree/trees árbol/árboles/m Baum/Bäume/m arbre/arbres/m
coat/coats abrigo/abrigos/m Mantel/Mäntel/m manteau/manteaux/m""".splitlines()
]
# English; Spanish m/f; German stem; French m/f
QUALITIES = [
    tuple(line.split(" "))
    for line in """red rojo/roja rot rouge/rouge
green verde/verde grün vert/verte
black negro/negra schwarz noir/noire
white blanco/blanca weiß blanc/blanche
yellow amarillo/amarilla gelb jaune/jaune
expensive caro/cara teuer cher/chère
new nuevo/nueva neu neuf/neuve
clean limpio/limpia sauber propre/propre
broken roto/rota kaputt cassé/cassée
heavy pesado/pesada schwer lourd/lourde
modern moderno/moderna modern moderne/moderne""".splitlines()
]
# English base, third, past; Spanish past; German participle; French participle; all transitive
ACTS = [
    tuple(line.split(" "))
    for line in """buy bought compró comprar gekauft kaufen acheté acheter
see saw vio ver gesehen sehen vu voir
find found encontró encontrar gefunden finden trouvé trouver
sell sold vendió vender verkauft verkaufen vendu vendre
lose lost perdió perder verloren verlieren perdu perdre
clean cleaned limpió limpiar geputzt putzen nettoyé nettoyer
repair repaired reparó reparar repariert reparieren réparé réparer
paint painted pintó pintar gemalt malen peint peindre
bring brought trajo traer gebracht bringen apporté apporter
choose chose eligió elegir gewählt wählen choisi choisir
forget forgot olvidó olvidar vergessen vergessen oublié oublier
hide hid escondió esconder versteckt verstecken caché cacher""".splitlines()
]
# a time or place phrase per language
PHRASES = [
    dict(zip(("en", "es", "de", "fr"), line.split("|"), strict=True))
    for line in """in the kitchen|en la cocina|in der Küche|dans la cuisine
in the garden|en el jardín|im Garten|dans le jardin
at school|en la escuela|in der Schule|à l'école
in the city|en la ciudad|in der Stadt|en ville
at the market|en el mercado|auf dem Markt|au marché
in the library|en la biblioteca|in der Bibliothek|à la bibliothèque
at the station|en la estación|am Bahnhof|à la gare
under the bridge|debajo del puente|unter der Brücke|sous le pont
next to the church|al lado de la iglesia|neben der Kirche|à côté de l'église
behind the hotel|detrás del hotel|hinter dem Hotel|derrière l'hôtel
in front of the school|delante de la escuela|vor der Schule|devant l'école""".splitlines()
]
DAYS = [
    dict(zip(("en", "es", "de", "fr"), line.split("|"), strict=True))
    for line in """on Monday|el lunes|am Montag|lundi
on Tuesday|el martes|am Dienstag|mardi
on Wednesday|el miércoles|am Mittwoch|mercredi
on Thursday|el jueves|am Donnerstag|jeudi
on Friday|el viernes|am Freitag|vendredi
on Saturday|el sábado|am Samstag|samedi
on Sunday|el domingo|am Sonntag|dimanche
this morning|esta mañana|heute Morgen|ce matin
yesterday|ayer|gestern|hier
today|hoy|heute|aujourd'hui""".splitlines()
]
NUMBERS = {
    "en": "two three four five six seven eight nine ten eleven twelve".split(),
    "es": "dos tres cuatro cinco seis siete ocho nueve diez once doce".split(),
    "de": "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split(),
    "fr": "deux trois quatre cinq six sept huit neuf dix onze douze".split(),
}
